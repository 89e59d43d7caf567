#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: source_archive.sh SOURCE VERSION
# The source archive is reproducible: the same bytes from the checkout, from the checkout with another umask
# and time zone, and from the tree that was unpacked from it.
set -euo pipefail

source=$1 version=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ ! -e "$source/.git" ]; then
    echo "skipped: not a checkout of git"
    exit 77
fi
"$source/scripts/make-dist" "$work/first" >/dev/null
(umask 077 && TZ=Asia/Tokyo "$source/scripts/make-dist" "$work/second" >/dev/null)
tar --extract --gzip --file="$work/first/tally-$version.tar.gz" --directory="$work"
"$work/tally-$version/scripts/make-dist" "$work/third" >/dev/null
for other in second third; do
    if ! cmp "$work/first/tally-$version.tar.gz" "$work/$other/tally-$version.tar.gz"; then
        echo "source_archive: the $other archive differs from the first" >&2
        exit 1
    fi
done
for file in Makefile CHANGELOG.md include/tally.h debian/control; do
    if [ ! -s "$work/tally-$version/$file" ]; then
        echo "source_archive: it has no $file" >&2
        exit 1
    fi
done
