# Shared by the scripts in this folder: a virtual environment with the project in it, on a machine that may have
# nothing but Python 3.11, pip and apt.

cd "$(dirname "$0")/.." || exit 1

say() { printf '%s\n' "$*" >&2; }

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

# need COMMAND PACKAGE: install Debian's PACKAGE unless COMMAND is there.
need() {
  command -v "$1" >/dev/null 2>&1 && return 0
  say "installing $2 (for $1)"
  [ -n "${apt_updated:-}" ] || as_root apt-get update -qq || return 1
  apt_updated=1
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
}

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { say "Python 3.11 or newer is needed"; exit 1; }

# make_venv EXTRAS: .venv with this checkout installed; again only when the metadata or the pins have changed.
make_venv() {
  stamp=$(cat setup.cfg pyproject.toml constraints.txt | cksum | tr -d ' ')
  case $(cat .venv/stamp 2>/dev/null) in "$stamp$1" | "$stamp[dev]") return 0 ;; esac  # [dev] has them all
  if ! "$python" -c 'import ensurepip' >/dev/null 2>&1; then need no-such-command python3-venv || exit 1; fi
  say "setting up .venv"
  [ -x .venv/bin/python ] || "$python" -m venv .venv || exit 1
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".$1" || exit 1
  printf '%s' "$stamp$1" > .venv/stamp
}
