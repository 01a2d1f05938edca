//! What `--help` says beside the options: explanations, examples, exit statuses.
//!
//! Lines are at most 79 characters long and examples are indented, for `man.rs` keeps both as they
//! are: "Words:" alone on a line becomes a section of the man page.

pub(super) const TOP: &str = "\
Examples:
  Two programs write whole messages into one pipe:
    (pipework send one & pipework send two & wait) | pipework recv --lines

  A FIFO that any process may send to, for as long as the receiver runs:
    pipework recv --from inbox --create --forever --lines &
    pipework send --to inbox 'a message'

  A build whose lines stay whole and tell where they come from:
    pipework run --tag make ::: npm run build

Exit status:
  0    done
  1    failed; the message on standard error says why and what to do
  2    the command line was not understood
  3    done, but damaged messages were reported (a writer was killed
       in the middle of one)
  124  the time given by --timeout is over
  141  the reader of standard output has left: the end, without a word
  pipework run hands on the exit status of what it runs.

`pipework COMMAND --help` has more examples.";

pub(super) const SEND: &str = "\
Messages are sent whole whatever their size, also when other processes send
into the same pipe at the same time. Many short ones share a write, and only
the longest is held in memory. Without --timeout, sending waits for as long as
it takes.

Examples:
  A message from an argument:
    pipework send 'hello' | pipework recv

  The whole of standard input, of any size, as one message:
    tar c photos | pipework send --to inbox

  Each line a message, sent as soon as it is there:
    tail -f access.log | pipework send --lines --to inbox

  Each file a message, compressed:
    pipework send --zstd=9 --files *.json | pipework recv --zstd --nul

  Text and messages through one pipe:
    (echo begin; pipework send --mixed data; echo end) |
      pipework recv --mixed --json

Exit status:
  0    sent
  1    failed: the reader has left, for instance
  2    usage
  124  no reader came, or the pipe stayed full, for longer than --timeout";

pub(super) const RECV: &str = "\
Examples:
  Every message on a line of its own:
    pipework send one two three | pipework recv --lines

  A FIFO made for the purpose, read until it is stopped:
    pipework recv --from inbox --create --forever --json

  One message, or status 124 if none is complete after five seconds:
    pipework recv --from inbox --count 1 --timeout 5

  A command for each message:
    pipework recv --from inbox \\
      --exec sh -c 'echo \"$PIPEWORK_PID sent $(wc -c) bytes\"'

Forms:
  Messages are written out as they are, nothing between them (on a terminal
  each ends with a newline); --lines, --nul and --json mark them off. In
  mixed mode text lines are written out too, in the order of arrival.

  --json writes objects like
    {\"type\":\"message\",\"pid\":7,\"writer\":\"7:9\",\"parts\":1,\"data\":\"hello\"}
  Data that is not UTF-8 comes as \"data_base64\". A \"burst\" has only data,
  and so has a \"line\", without its end.

  --exec gives the message to the command as its standard input, an unnamed
  file. PIPEWORK_TYPE (message or burst), PIPEWORK_PID, PIPEWORK_WRITER and
  PIPEWORK_PARTS are in its environment. One command runs at a time.

Exit status:
  0    the writers have left, or --count messages have come
  1    failed, or a command of --exec did
  2    usage
  3    damaged messages were reported on standard error
  124  no message or line was complete within --timeout
  141  the reader of standard output has left";

pub(super) const RUN: &str = "\
Each command has a pipe of its own as standard output; standard error is not
touched. A single command keeps standard input, many get an empty one. Lines
are printed whole, never mixed with each other.

Without --messages, messages go to standard output with a newline behind them.
--nul and --json choose another form for them, and for lines that share the
destination with them; objects name their command. With exec: the message is on
the command's standard input, as with `pipework recv --exec`.

A pipe is read until everyone who holds it has left, also processes that the
command left behind. When an output fails or its reader leaves, the pipes are
closed (the commands get SIGPIPE), and what has been received for the other
output is still written there. Ctrl-C (or SIGTERM, or SIGHUP) is handed on to the
commands, and what they still print is printed. A second one, a second later or
more, kills them.

Examples:
  Messages and stray prints of a program, told apart (the program sends with
  `pipework send --mixed`, or with the library):
    pipework run --messages messages.log -- ./collect --fast

  Many commands at once, each line whole and marked:
    pipework run --tag make lint ::: make test ::: make docs

  Shell lines, their messages as JSON:
    pipework run --json --shell 'echo text; pipework send --mixed data' \\
      --shell 'sleep 1; echo more'

  A command for each message:
    pipework run --messages exec:'jq .id' -- ./collect

Exit status:
  That of the command, or 128 + N if signal N killed it; of many commands the
  highest.
  126, 127  a command could not be started, or was not found
  130       after Ctrl-C (143 after SIGTERM, 129 after SIGHUP)
  If all commands went well:
  1         messages could not be delivered
  141       the reader of standard output has left
  3         damaged messages were reported on standard error";

pub(super) const DEMO: &str = "\
Each line of the file is a record. The writers are processes; each sends its
share of the records as messages, and prints stray text into the same pipe
besides. The reader compares every record with the file, and checks that each
comes exactly once and that a writer's records keep their order. The same bytes
through a bare pipe, unchecked and undivided, stand beside it.

Then client processes ask worker processes about the records, through a segment
of shared memory. Half-way a worker is killed; every call must be answered
rightly, or told that its worker has died.

Examples:
  With whatever text this machine has:
    pipework demo

  With a file of your own and eight writers:
    pipework demo --writers 8 /var/log/syslog

Exit status:
  0    every record arrived once and whole, every call was answered or told
  1    otherwise
  141  the reader of standard output left before that was known";

pub(super) const COMPLETIONS: &str = "\
Examples:
  pipework completions bash \\
    > ~/.local/share/bash-completion/completions/pipework
  pipework completions zsh > ~/.zfunc/_pipework
  pipework completions fish > ~/.config/fish/completions/pipework.fish";

pub(super) const MAN: &str = "\
Examples:
  pipework man ~/.local/share/man/man1
  pipework man | man -l -";
