#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The shared library is called libtally.so.<version> and asks to be found as libtally.so.<major>.
set -euo pipefail

readelf=$1 library=$2 version=$3

wanted=libtally.so.${version%%.*}
found=$("$readelf" -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
if [ "$found" != "$wanted" ]; then
    echo "soname: $library has the soname '$found', wanted '$wanted'" >&2
    exit 1
fi
if [ "$(basename "$library")" != "libtally.so.$version" ]; then
    echo "soname: $library should be called libtally.so.$version" >&2
    exit 1
fi
if ! [ "$(dirname "$library")/libtally.so" -ef "$library" ]; then
    echo "soname: libtally.so beside $library does not lead to it" >&2
    exit 1
fi
