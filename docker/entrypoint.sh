#!/bin/sh
# numba reads compiled kernels only from a writable directory, so this copies them from the image (about 20 MB). The root
# file system can be read-only, with a tmpfs or an emptyDir at $NUMBA_CACHE_DIR.
set -eu

cp -R /opt/rarestream/kernels/. "$NUMBA_CACHE_DIR" ||
    echo "the compiled kernels cannot be copied to $NUMBA_CACHE_DIR; they will be compiled anew" >&2
exec "$@"
