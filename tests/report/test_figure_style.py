from paceline.report.figure_style import scheme_style


def test_every_scheme_has_a_look_of_its_own():
    names = [f"scheme {n}" for n in range(24)]
    styles = [scheme_style(name, names) for name in names]
    assert len(set(styles)) == 24
    assert len({colour for colour, _ in styles[:12]}) == 12
    assert len({marker for _, marker in styles[:12]}) == 12
