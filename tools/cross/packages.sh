#!/bin/sh
# packages.sh ROOT [PACKAGE...] -- what Minerva needs of another architecture's Debian packages, and those named besides, unpacked below ROOT; nothing is
# installed, and apt's own lists stay as they are. Debian alone; libraries of the C compiler are those of libc6-dev-arm64-cross. ROOT/cc is the compiler for
# it, and ROOT/var/lib/dpkg says which package a file is of (dpkg-query --admindir).
set -eu
root=${1:?usage: packages.sh ROOT [PACKAGE...]}
shift
set -- libcjson1 libcjson-dev libinih1 libinih-dev libpcre2-8-0 libpcre2-dev libutf8proc2 libutf8proc-dev "$@"
[ -e "$root/complete" ] && [ "$(cat "$root/complete")" = "$*" ] && exit 0
rm -rf "$root"
mkdir -p "$root/lists/partial" "$root/debs" "$root/var/lib/dpkg/info"
root=$(cd "$root" && pwd)
apt() {
    (cd "$root/debs" && apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::Lists=$root/lists" \
        -o Dir::State::status=/dev/null -o APT::Sandbox::User=root "$@")
}
apt update
apt download "$@"
echo 1 > "$root/var/lib/dpkg/info/format"
for deb in "$root"/debs/*.deb; do
    dpkg -x "$deb" "$root"
    name=$(dpkg-deb -f "$deb" Package)
    case $(dpkg-deb -f "$deb" Multi-Arch) in same) name=$name:arm64 ;; esac
    dpkg-deb --fsys-tarfile "$deb" | tar -t | sed 's/^\.//; s/\/$//; /^$/d' > "$root/var/lib/dpkg/info/$name.list"
    { echo 'Status: install ok installed'; dpkg-deb -f "$deb"; echo; } >> "$root/var/lib/dpkg/status"
done
cp -R /usr/aarch64-linux-gnu/lib "$root/"
# Where an installed package has links of its own making.
for file in "$root"/usr/lib/aarch64-linux-gnu/openblas-pthread/libopenblas.so*; do
    [ ! -e "$file" ] || ln -sf "openblas-pthread/${file##*/}" "$root/usr/lib/aarch64-linux-gnu/"
done
cat > "$root/cc" <<'END'
#!/bin/sh
# -print-file-name finds what lies here; all else is the compiler's.
here=$(cd "$(dirname "$0")" && pwd)
case ${1-} in -print-file-name=*)
    for folder in usr/lib/aarch64-linux-gnu lib/aarch64-linux-gnu; do
        if [ -e "$here/$folder/${1#*=}" ]; then echo "$here/$folder/${1#*=}"; exit; fi
    done ;;
esac
exec aarch64-linux-gnu-gcc "$@"
END
chmod +x "$root/cc"
rm -rf "$root/lists" "$root/debs"
echo "$*" > "$root/complete"
