#!/bin/sh
# packages.sh ROOT -- what Minerva needs of another architecture's Debian packages, unpacked below ROOT; nothing is installed, and apt's
# own lists stay as they are. Debian alone; libraries of the C compiler are those of libc6-dev-arm64-cross.
set -eu
root=${1:?usage: packages.sh ROOT}
[ -e "$root/complete" ] && exit 0
rm -rf "$root"
mkdir -p "$root/lists/partial" "$root/debs"
root=$(cd "$root" && pwd)
apt() {
    (cd "$root/debs" && apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::Lists=$root/lists" \
        -o Dir::State::status=/dev/null -o APT::Sandbox::User=root "$@")
}
apt update
apt download libcjson1 libcjson-dev libinih1 libinih-dev libpcre2-8-0 libpcre2-dev libutf8proc2 libutf8proc-dev
for deb in "$root"/debs/*.deb; do
    dpkg -x "$deb" "$root"
done
cp -R /usr/aarch64-linux-gnu/lib "$root/"
rm -rf "$root/lists" "$root/debs"
touch "$root/complete"
