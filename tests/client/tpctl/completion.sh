#!/usr/bin/env bash
# Completes command lines in bash as readline does, by the script that `tpctl completion bash` prints, and checks the
# syntax of the one for zsh where zsh is there. Usage: completion.sh TPCTL
set -euo pipefail
tpctl=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"$tpctl" completion bash >completion.bash
# shellcheck disable=SC1091
source ./completion.bash
[ "$(complete -p tpctl)" = "complete -F _tpctl tpctl" ] || { echo "tpctl has no completion: $(complete -p tpctl)" >&2; exit 1; }
mkdir models
touch model.pb 'a name.npy' x.npy
# In place of the program: two models, and what it was asked.
tpctl() {
  echo "$*" >.asked
  printf 'NAME  STATE\nmlp   READY\nkjv   READY\n'
}

failed=0
# expect 'LINE' 'WORD ...': what completes LINE, whose words readline breaks at = and : too.
expect() {
  local line=$1 want=$2 rest=$1 word
  COMP_WORDS=() COMPREPLY=()
  while [[ -n $rest ]]; do
    if [[ $rest =~ ^\ +(.*)$ ]]; then
      rest=${BASH_REMATCH[1]}
      if [[ -z $rest ]]; then COMP_WORDS+=(''); fi
    elif [[ $rest =~ ^([=:]+)(.*)$ || $rest =~ ^([^=:\ ]+)(.*)$ ]]; then
      word=${BASH_REMATCH[1]} rest=${BASH_REMATCH[2]}
      COMP_WORDS+=("$word")
    fi
  done
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line}
  _tpctl
  local got
  got=$(printf '%s\n' ${COMPREPLY[@]+"${COMPREPLY[@]}"} | tr ' ' '\n' | sort | paste -sd ' ')
  want=$(printf '%s\n' $want | sort | paste -sd ' ')
  if [ "$got" != "$want" ]; then
    echo "'$line' is completed by '$got', not '$want'" >&2
    failed=1
  fi
}

expect 'tpctl sub' 'submit'
expect 'tpctl m' 'mesh model models'
expect 'tpctl --server 127.0.0.1:7050 tensor re' 'redistribute'
expect 'tpctl --server=127.0.0.1:7050 mesh ' 'create delete list'
expect 'tpctl tensor put --pl' '--placements'
expect 'tpctl tensor put --serv' '--server'
expect 'tpctl submit --' '--help --help-all --name --mesh --dry-run --replace --server --timeout --output-format --tls-cert --tls-key --tls-ca --version'
expect 'tpctl import --plan ' 'standard auto'
expect 'tpctl import --plan=' 'standard auto'
expect 'tpctl import --plan=au' 'auto'
expect 'tpctl --output-format j' 'json'
expect 'tpctl models --output-format=t' 'table'
expect 'tpctl import mo' 'models'
expect 'tpctl submit mo' 'model.pb models'
expect 'tpctl submit --name submit mo' 'model.pb models'
expect 'tpctl submit --dry-run mo' 'model.pb models'
expect 'tpctl submit --tls-ca=mo' 'model.pb models'
expect 'tpctl explain model.pb --against=model' 'model.pb models'
expect 'tpctl forward mlp --input x=x' 'x.npy'
expect 'tpctl forward mlp --input x=' 'a name.npy completion.bash model.pb models x.npy'
expect 'tpctl tensor put w --local 0=x' 'x.npy'
expect 'tpctl tensor put w x' 'x.npy'
expect 'tpctl tensor put w a' 'a name.npy'
[ "${#COMPREPLY[@]}" -eq 1 ] || { echo "a name with a space came apart" >&2; failed=1; }
expect 'tpctl tensor put x' ''
expect 'tpctl forward --output-form ' 'full shards'
expect 'tpctl completion ' 'bash zsh'
expect 'tpctl submit --name ' ''
expect 'tpctl describe ' 'kjv mlp'
expect 'tpctl --server 10.0.0.7:7050 generate k' 'kjv'
[ "$(cat .asked)" = "--server 10.0.0.7:7050 --timeout 2 models" ] || { echo "asked was: $(cat .asked)" >&2; failed=1; }

# Every command of --help completes.
"$tpctl" --help | sed -n '/^Subcommands:/,$s/^  \([a-z][a-z-]*\) .*/\1/p' >commands
[ "$(wc -l <commands)" -ge 10 ]
while read -r command; do expect "tpctl $command" "$(grep "^$command" commands | paste -sd ' ')"; done <commands

"$tpctl" completion zsh >_tpctl
[ "$(head -n 1 _tpctl)" = "#compdef tpctl" ]
grep -q "'--mesh=\[Name of the mesh\]:mesh: '" _tpctl
if command -v zsh >/dev/null; then zsh -n _tpctl; fi
code=0
"$tpctl" completion fish 2>/dev/null || code=$?
[ "$code" -eq 2 ] || { echo "an unknown shell: exit $code" >&2; failed=1; }
exit "$failed"
