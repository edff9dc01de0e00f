"""Real chest X-rays from beside the checkout: AUROC of networks beside the baseline.

Skipped where they are not at hand. No number here is a medical claim.
"""

from pathlib import Path

import pytest

from nbkit.questions import chexnet
from tests.launch.conftest import plugins, store
from tests.questions.conftest import notebook_parameters

__all__ = ["plugins", "store"]

TABLE = Path(__file__).parents[3] / "shared" / "data/chest-xray/nih14-256/labels.csv"

pytestmark = [
    pytest.mark.skipif(not TABLE.is_file(), reason=f"{TABLE} is not there"),
    pytest.mark.timeout(3_600),
]


@pytest.mark.parametrize(
    ("model", "image_size", "epochs"), [("resnet18", 96, 6), ("densenet121", 64, 3)]
)
def test_the_network_is_no_better_than_twelve_global_statistics(
    model, image_size, epochs, capsys
):
    changes = {
        "data": str(TABLE),
        "model": model,
        "image_size": image_size,
        "epochs": epochs,
        "repeats": 1,
        "gpus": 1,
        "tensorboard": False,
        "device": "auto",
    }
    study = chexnet.run(
        chexnet.plan(notebook_parameters("chexnet", minutes=0, **changes))
    )

    result = chexnet.result(study)
    with capsys.disabled():
        table = result.report().tables[0].to_text()
        print(f"\n{model} at {image_size} px, {epochs} epochs\n{table}")
    findings = {one.label: one for one in result.findings}
    assert findings["Hernia"].caveat == "no evaluation image with the label"
    # 0.911 by the same kind of baseline, as its source says.
    assert findings["Pneumonia"].baseline.value == pytest.approx(0.911, abs=0.02)
    assert findings["Pneumonia"].single.value > 0.6
    assert findings["mean"].gain.low < 0
    assert "not evidence that it recognizes disease" in result.answer
