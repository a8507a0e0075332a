"""Settings of Paceline, which Hydra finds as pkg://paceline.conf."""
