from paceline.report.figure_style import scheme_style


def test_every_scheme_has_a_look_of_its_own():
    names = [f"scheme {n}" for n in range(12)]
    assert len({scheme_style(name, names) for name in names}) == 12
