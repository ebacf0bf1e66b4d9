#!/bin/sh
# Install Debian's chromium for the explorer's browser tests, where that is possible; never fail.
# Without it those tests are skipped, and say so.
command -v chromium >/dev/null 2>&1 && exit 0
if [ "$(id -u)" -ne 0 ]; then
  echo "chromium is not installed and this is not root: browser tests will be skipped" >&2
elif ! command -v apt-get >/dev/null 2>&1; then
  echo "chromium is not installed and there is no apt-get: browser tests will be skipped" >&2
elif ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >/dev/null 2>&1; then
  echo "chromium cannot be installed here: browser tests will be skipped" >&2
fi
exit 0
