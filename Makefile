# Two commands do all the set-up on a fresh Debian machine as root: `make demo` and `make test`.
