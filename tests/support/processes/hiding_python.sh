#!/bin/sh
# This interpreter for Spark's Python workers, in a name space of mounts where the folder HIDDEN_FOLDER is empty.
exec unshare --map-root-user --mount sh -c 'mount -t tmpfs none "$HIDDEN_FOLDER" && exec "$0" "$@"' "$HIDING_PYTHON" "$@"
