#!/usr/bin/env bash
# Makes sure that Chromium is there for the browser tests: the system's, else Debian's package as root; and where Debian has
# it the headless shell beside it, which draws the same pages in 0.6 of the processor time.
set -euo pipefail
has() { command -v "$1" >/dev/null 2>&1; }
has_whole() { has chromium || has chromium-browser || has google-chrome; }
may_install() { [ "$(id -u)" = 0 ] && has apt-get; }
install_package() {
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o DPkg::Lock::Timeout=60 "$1" >/dev/null
}
if has_whole && has chromium-headless-shell; then exit 0; fi
if may_install; then
  echo "Installing Chromium for the browser tests"
  apt-get update -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 || true
  has_whole || install_package chromium
  install_package chromium-headless-shell 2>/dev/null || echo "This system has no headless shell: whole Chromium serves"
fi
if ! has_whole; then
  echo "The browser tests need Chromium: install your system's package 'chromium' and run 'make test' again." >&2
  exit 1
fi
