#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: packages.sh FOLDER SOURCE
# Unpacks the Debian packages of FOLDER (make deb) into an empty root with dpkg, which refuses a file that two packages
# have, and uses them: each has its files; the README's program is built with pkg-config, and runs alone, under tally
# run, under both MPIs, and from Python. apt must find all that they depend on. Removes the root. Needs root, or sudo
# without a password.
set -euo pipefail

folder=$1 source=$2
root=$(mktemp -d)
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
trap '"${as_root[@]}" rm -rf "$root"' EXIT
version=$(dpkg-parsechangelog -l "$source/debian/changelog" -S Version)

fail() {
    echo "packages: $*" >&2
    exit 1
}

files=()
for package in libtally0 libtally-dev tally libtally0-openmpi libtally0-mpich python3-tally tally-doc; do
    file=$(find "$folder" -maxdepth 1 -name "${package}_${version}_*.deb")
    [ -n "$file" ] || fail "make deb has made no $package $version"
    files+=("$(realpath "$file")")
done
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
touch "$root/var/lib/dpkg/status"
"${as_root[@]}" dpkg --root="$root" --log=/dev/null --force-depends --unpack "${files[@]}" >/dev/null
apt-get install --simulate "${files[@]}" >/dev/null || fail "apt does not find all that the packages depend on"
libraries=$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
export LD_LIBRARY_PATH=$libraries PKG_CONFIG_PATH=$libraries/pkgconfig PATH=$root/usr/bin:$PATH
export PYTHONPATH=$root/usr/lib/python3/dist-packages PYTHONDONTWRITEBYTECODE=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

# says TEXT COMMAND...
says() {
    local wanted=$1 said
    shift
    said=$("$@" 2>&1) || fail "'$*' ended with $?: $said"
    grep -qF -- "$wanted" <<<"$said" || fail "'$*' did not say '$wanted': $said"
}

[ "$(pkg-config --modversion tally)" = "${version%-*}" ] || fail "tally.pc has another version than $version"
read -ra flags <<<"$(pkg-config --define-variable=prefix="$root/usr" --cflags --libs tally)"
cc -o "$root/line" "$source/examples/line.c" "${flags[@]}"
says "tally ${version%-*}" tally version
says "rank 0 of 1: y = 2.000 x + 1.000" "$root/line"
says "rank 1 of 2: y = 2.000 x + 1.000" tally run -n 2 "$root/line"
says "rank 1 of 2: y = 2.000 x + 1.000" mpirun.openmpi -n 2 "$root/line"
says "rank 1 of 2: y = 2.000 x + 1.000" mpiexec.mpich -n 2 "$root/line"
says "TallyError" /usr/bin/python3 -c 'import tally; print(tally.TallyError)'
for page in man1/tally.1 man3/tally.3; do
    [ -s "$root/usr/share/man/$page.gz" ] || fail "no manual page $page"
done
# Debian's tools put a manual beside the documents of the package that it describes. Pages keep their names, by which
# they link to each other.
for file in README.md docs/start.md docs/plots/front.svg examples/line.c; do
    [ -n "$(find "$root/usr/share/doc" -path "*/tally*/$file" -size +0)" ] || fail "tally-doc has no $file"
done
echo "all packages work"
