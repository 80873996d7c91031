#!/usr/bin/env bash
# Makes sure that a Chromium is there for the browser tests: Debian's headless shell, which draws the same pages in 0.6 of
# the processor time, else the system's Chromium, else Debian's package as root.
set -euo pipefail
has() { command -v "$1" >/dev/null 2>&1; }
if has chromium-headless-shell; then exit 0; fi
install_package() {
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=60 "$1" >/dev/null
}
if [ "$(id -u)" = 0 ] && has apt-get; then
  echo "Installing Chromium's headless shell for the browser tests"
  apt-get update -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 || true
  if install_package chromium-headless-shell 2>/dev/null; then exit 0; fi
fi
for name in chromium chromium-browser google-chrome; do
  if has "$name"; then exit 0; fi
done
if [ "$(id -u)" = 0 ] && has apt-get; then
  echo "Installing Chromium for the browser tests"
  install_package chromium
  exit 0
fi
echo "The browser tests need Chromium: install your system's package 'chromium' and run 'make test' again." >&2
exit 1
