#!/bin/sh
# fetch_debian_source.sh FOLDER PACKAGE: downloads a source package of Debian stable into FOLDER.
#
# Uses the mirror, proxy and keys of this machine's apt, whichever release it runs, and leaves apt's own lists alone:
# no root needed, no deb-src line either. The last line on standard error says why not, when it can't.
set -eu
folder=$1
package=$2

fail() {
  echo "$1" >&2
  exit 1
}

command -v apt-get >/dev/null || fail "this machine has no apt-get"
mirror=$(apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 2>/dev/null |
  awk '$1 == "Debian" && $2 !~ /-/ { print $3; exit }')
[ -n "$mirror" ] || fail "apt here has no Debian mirror (run apt-get update once, if it should)"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keys" ] || fail "the package debian-archive-keyring is not installed"

mkdir -p "$folder/sources" "$folder/lists/partial" "$folder/cache/archives/partial"
cat >"$folder/sources/stable.sources" <<SOURCES
Types: deb-src
URIs: $mirror
Suites: stable
Components: main
Signed-By: $keys
SOURCES

cd "$folder"
set -- -qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$PWD/sources" \
  -o "Dir::State::Lists=$PWD/lists" -o "Dir::Cache=$PWD/cache" -o APT::Sandbox::User=
apt-get "$@" update >log 2>&1 || fail "apt-get update failed: $(tail -n 1 log)"
apt-get "$@" source --download-only "$package" >log 2>&1 || fail "apt-get source failed: $(tail -n 1 log)"
