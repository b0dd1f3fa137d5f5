#!/bin/sh
# numba reads compiled kernels only from a directory that it may also write. The image's are therefore copied to one
# (some 20 MB): the root file system can stay read-only, with a tmpfs or an emptyDir mounted at $NUMBA_CACHE_DIR.
set -eu

cp -R /opt/rarestream/kernels/. "$NUMBA_CACHE_DIR" ||
    echo "the compiled kernels cannot be copied to $NUMBA_CACHE_DIR; they will be compiled anew" >&2
exec "$@"
