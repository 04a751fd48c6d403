"""Pose: the joints of one person, drawn as a skeleton.

    python examples/vision/pose.py models/movenet_single_pose_lightning_ptq.tflite images/grace_hopper.png \
        --out pose.png

The model is MoveNet: 17 joints, each with a height, a distance from the left and a score.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageOps

import tflgpu

JOINTS = (
    *("nose", "left eye", "right eye", "left ear", "right ear", "left shoulder", "right shoulder", "left elbow"),
    *("right elbow", "left wrist", "right wrist", "left hip", "right hip", "left knee", "right knee"),
    *("left ankle", "right ankle"),
)
LEFT, RIGHT, MIDDLE = "#ff7043", "#29b6f6", "#ffee58"
BONES = (
    *(("nose", "left eye", LEFT), ("left eye", "left ear", LEFT), ("left shoulder", "left elbow", LEFT)),
    *(("left elbow", "left wrist", LEFT), ("left shoulder", "left hip", LEFT), ("left hip", "left knee", LEFT)),
    *(("left knee", "left ankle", LEFT), ("nose", "right eye", RIGHT), ("right eye", "right ear", RIGHT)),
    *(("right shoulder", "right elbow", RIGHT), ("right elbow", "right wrist", RIGHT)),
    *(("right shoulder", "right hip", RIGHT), ("right hip", "right knee", RIGHT), ("right knee", "right ankle", RIGHT)),
    *(("left shoulder", "right shoulder", MIDDLE), ("left hip", "right hip", MIDDLE)),
)


class Joint(NamedTuple):
    """x, y: in pixels of the picture."""

    x: float
    y: float
    score: float


def find_joints(model: tflgpu.CompiledModel, picture: Image.Image) -> dict[str, Joint]:
    _, height, width, _ = model.inputs[0].shape
    # The model wants a square. Bands of black keep the body's proportions, where resizing alone would squeeze it.
    side = max(picture.size)
    left, top = (side - picture.width) / 2, (side - picture.height) / 2
    square = ImageOps.pad(picture, (width, height), Image.Resampling.BILINEAR)
    (found,) = model.run(np.asarray(square)[None]).values()
    return {
        name: Joint(float(x * side - left), float(y * side - top), float(score))
        for name, (y, x, score) in zip(JOINTS, found[0, 0], strict=True)
    }


def draw_skeleton(picture: Image.Image, joints: dict[str, Joint]) -> None:
    canvas, thickness = ImageDraw.Draw(picture), max(picture.size) / 90
    for start, end, colour in BONES:
        if start in joints and end in joints:
            canvas.line((joints[start][:2], joints[end][:2]), colour, round(thickness))
    for joint in joints.values():
        canvas.circle(joint[:2], thickness, "white", "black")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the skeleton of the person in a picture.")
    parser.add_argument("model", type=Path)
    parser.add_argument("image", type=Path)
    parser.add_argument("--out", type=Path, default=Path("pose.png"))
    parser.add_argument("--threshold", type=float, default=0.3, help="least score of a joint")
    arguments = parser.parse_args()

    model = tflgpu.compile(arguments.model)
    with Image.open(arguments.image) as file:
        picture = file.convert("RGB")
    joints = {name: j for name, j in find_joints(model, picture).items() if j.score >= arguments.threshold}
    for name, joint in joints.items():
        print(f"{name:15} {joint.score:4.0%}  at {joint.x:.0f},{joint.y:.0f}")
    draw_skeleton(picture, joints)
    picture.save(arguments.out)
    print(f"drawn in {arguments.out}")


if __name__ == "__main__":
    main()
