"""A study that trains for seconds: two workers, 600 made-up images, no MLflow."""

import yaml

STUDY = {
    "question": "Does it?",
    "data": {
        "num_train": 600,
        "num_validation": 200,
        "num_test": 200,
        "image_shape": [1, 12, 12],
    },
    "workers": 2,
    "measurement": {"mlflow": {"tracking_uri": None}},
}


def write_small_study(root, study, params, cluster="local", **settings):
    """`experiments/<study>.yaml`; `params`: its axes."""
    content = {
        "defaults": [{"override /data": "synthetic"}, {"override /cluster": cluster}],
        "study": study,
        **STUDY,
        **settings,
        "hydra": {"sweeper": {"params": params}},
    }
    path = root / "experiments" / f"{study}.yaml"
    path.write_text("# @package _global_\n" + yaml.safe_dump(content, sort_keys=False))
