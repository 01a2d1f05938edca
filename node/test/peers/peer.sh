# The other end of languages.test.mjs in Rust, which is the command: opens PATH, serve PATH,
# call PATH or echo.
# PIPEWORK is the command.
case $1 in
opens) exec "$PIPEWORK" top --once "$2" ;;
serve)
    exec "$PIPEWORK" serve --stream "$2" -- sh -c 'data=$(cat)
        case $data in
        fail) echo "no: ä" >&2; exit 1 ;;
        parts) printf "one\ntwo\n" ;;
        *) printf %s "$data" | tr a-z A-Z ;;
        esac' 2>/dev/null
    ;;
call)
    "$PIPEWORK" call "$2" abc && echo
    head -c 100000 /dev/zero | tr '\0' x | "$PIPEWORK" call "$2" | tr -cd X | wc -c
    "$PIPEWORK" call --stream "$2" parts | tr '\n' ' ' && echo
    "$PIPEWORK" call "$2" fail 2>&1
    ;;
echo)
    echo loading...
    "$PIPEWORK" recv --lines | tr a-z A-Z | "$PIPEWORK" send --mixed --zstd --lines
    ;;
esac
exit 0
