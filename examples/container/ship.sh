#!/usr/bin/env bash
# Build a container image with a model and its compiled kernels. Run it on a machine like those that the image is for.
#
#   ship.sh MODEL LABELS TAG [OPTION OF docker run ...]
#   examples/container/ship.sh models/tf2_mobilenet_v2_1.0_224_ptq.tflite labels/imagenet_labels.txt classifier --gpus all
set -euo pipefail

model=$1 labels=$2 tag=$3 device_options=("${@:4}")
here=$(dirname "$(realpath "$0")")

context=$(mktemp --directory)
trap 'rm -rf "$context"' EXIT
cp "$here/Dockerfile" "$here/app.py" "$context"
cp "$model" "$context/model.tflite"
cp "$labels" "$context/labels.txt"
pip wheel --quiet --no-deps --wheel-dir "$context" "$here/../.."  # tflgpu as it is in this repository

# The bundle is made in the image, so that Python, tflgpu and the driver are those that will load it.
docker build --target runtime --tag "$tag-runtime" "$context"
docker run --rm "${device_options[@]}" --volume "$context:/context" "$tag-runtime" \
    tflgpu precompile-cache model.tflite --cache-dir /tmp/cache --bundle /context/models.bundle

digest=$(sha256sum "$context/models.bundle" | cut --delimiter=' ' --fields=1)
docker build --build-arg BUNDLE_DIGEST="$digest" --tag "$tag" "$context"
echo "built $tag with bundle $digest"
