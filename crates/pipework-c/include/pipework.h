/*
 * pipework: whole messages, calls and bytes between the processes and threads of one machine.
 *
 * ```c
 * #include <pipework.h>
 * #include <stdio.h>
 * #include <sys/wait.h>
 * #include <unistd.h>
 *
 * static int fail(const pw_error *error) {
 *     char text[256];
 *     pw_error_text(error, text, sizeof text);
 *     return fprintf(stderr, "%s\n", text), 1;
 * }
 *
 * static int serve(pw_segment *segment) {
 *     pw_error error;
 *     pw_server *server = NULL;
 *     pw_buffer data = PW_BUFFER; // grown by the library, used again and again
 *     pw_request request;
 *     pw_status status = pw_reqrep_server(segment, NULL, &server, &error);
 *     while (status == PW_OK || status == PW_INTERRUPTED) { // after a signal: the same call again
 *         status = pw_server_recv(server, pw_in_ms(500), &data, &request, &error);
 *         if (status == PW_OK) {
 *             status = pw_server_reply(server, request.ticket, data.data, data.len, 0, NULL, &error);
 *         }
 *     }
 *     pw_buffer_free(&data);
 *     pw_server_free(server);
 *     return status == PW_TIMED_OUT ? 0 : fail(&error);
 * }
 *
 * int main(void) {
 *     pw_error error;
 *     pw_segment *segment = NULL;
 *     pw_client *client = NULL;
 *     pw_buffer reply = PW_BUFFER;
 *     pw_reqrep_options options;
 *     pw_reqrep_options_init(&options, sizeof options);
 *     options.slots = 8;
 *     if (pw_reqrep_anonymous(&options, &segment, &error) != PW_OK) return fail(&error);
 *     if (fork() == 0) _exit(serve(segment));
 *     if (pw_reqrep_client(segment, NULL, &client, &error) != PW_OK) return fail(&error);
 *     // PW_PEER_DIED within 250 ms, had the server been killed with the request.
 *     if (pw_client_call(client, "hello", 5, 0, pw_in_ms(5000), &reply, NULL, &error) != PW_OK) {
 *         return fail(&error);
 *     }
 *     printf("%.*s\n", (int)reply.len, (const char *)reply.data);
 *     pw_buffer_free(&reply);
 *     pw_client_free(client);
 *     pw_segment_free(segment);
 *     return wait(NULL) < 0;
 * }
 * ```
 *
 * A program is compiled and linked with
 *
 * ```text
 * cc program.c $(pkg-config --cflags --libs pipework)
 * ```
 *
 * Rules for all functions:
 *
 * 1. Names. A function on a handle is pw_TYPE_VERB; what makes a handle is pw_ROOM_HOW. A `try_`
 *    function never waits, and returns PW_WOULD_BLOCK where there is nothing now.
 * 2. Results. A pw_status is PW_OK, which is 0, or says why the call failed. A program that wants
 *    to know more passes a pw_error of its own: it is filled in when a call fails (but not by the
 *    PW_WOULD_BLOCK of a `try_` function) and untouched otherwise. Results go where a pointer
 *    says, and are written when the call succeeds, unless the function says otherwise. Where a
 *    result is not wanted, its pointer may be NULL; a new handle is always wanted. errno is no
 *    part of this, and is left as it was.
 * 3. Deadlines are absolute times: see pw_deadline.
 * 4. Ownership. A handle is given back to its `_free`, which takes NULL, too. Nothing is freed
 *    with free(). What comes in a pw_buffer is the program's; what comes as a pw_bytes, as
 *    a pw_space or in a pw_item is lent until the next call on the same handle. What goes in is
 *    copied, strings too.
 * 5. Options are structs with `size` first, which `_options_init` fills in with the defaults; NULL
 *    stands for the defaults. Later versions add fields at the end. A program that was compiled
 *    for a later version gets PW_INVALID if it sets what this one does not know. Structs of
 *    facts that are filled in come with their size for the same reason.
 * 6. Threads. Each type says which threads may use it. Freeing one needs that nobody uses it.
 * 7. Signals. A handler that ran ends a wait with PW_INTERRUPTED, and nothing is lost: call again.
 *    (Only pw_client_call has cancelled its call by then, and pw_writer_close has closed.) No
 *    function but pw_version may be called in a handler.
 * 8. Processes. A child that was forked may use what it inherits, as each room says. SIGPIPE never
 *    comes from here. Descriptors that are passed in are lent for the call, unless a pw_fd_how
 *    says otherwise; those that come out are the program's, and closed when another program is
 *    executed.
 * 9. NULL where it is not allowed, more bytes than PTRDIFF_MAX, or a struct of size 0 is
 *    PW_INVALID, and pw_error.op names the function. NULL with length 0 is an empty payload.
 * 10. A program may ask whether pw_abi() is PW_ABI: if not, it was compiled for another library.
 */
#ifndef PIPEWORK_H
#define PIPEWORK_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------------------
 * What a function returns, and the error that it fills in.
 */

/* How a call ended: PW_OK, or why it failed. The numbers never change. */
typedef int32_t pw_status;

/* It is done. */
#define PW_OK 0
/* It cannot be done at once, and waiting was not asked for. */
#define PW_WOULD_BLOCK 1
/* The deadline passed first. What the call had not done, it has not done. */
#define PW_TIMED_OUT 2
/* A signal handler ran while the call waited. Nothing is lost; call again. */
#define PW_INTERRUPTED 3
/* The other side is gone: the end of what there is to read, or nobody who reads. */
#define PW_CLOSED 4
/* Larger than a limit that this end was given. */
#define PW_TOO_LONG 5
/* The handle or the ticket belongs to a time that is over. */
#define PW_STALE 6
/* The process that had the request has died. */
#define PW_PEER_DIED 7
/* Nobody is there to take the request. */
#define PW_NO_SERVER 8
/* A part of the message never came. */
#define PW_TORN 9
/* Bytes that no correct peer writes. */
#define PW_CORRUPT 10
/* Made by a build or a machine that this one cannot work with, or for another kind of call. */
#define PW_INCOMPATIBLE 11
/* This kernel or this kind of descriptor cannot do it. */
#define PW_UNSUPPORTED 12
/* The arguments have no meaning: NULL where it is not allowed, impossible sizes. */
#define PW_INVALID 13
/* Any other refusal of the kernel; pw_error.os says which. */
#define PW_OS 14
/* The other side gave up: a server its request, or a pipe's other end its stream. */
#define PW_FAILED 15
/* A mistake of this library. Its text went to standard error. */
#define PW_BUG 255

/*
 * Why a call failed. A program that wants to know passes a pointer to one of its own; it is filled
 * in when the call fails, and left as it is otherwise.
 */
typedef struct pw_error {
    /* What the call returned. */
    pw_status kind;
    /*
     * The kernel's number, as in errno; 0 if the kernel had no part in it. A negative number is
     * for pw_error_text.
     */
    int32_t os;
    /* How far the call had got, in bytes or items, where it does several. */
    uint64_t done;
    /* The operation that failed, for instance "reqrep recv". */
    char op[48];
} pw_error;

/* -------------------------------------------------------------------------------------------------
 * Statuses and errors in words.
 */

/* What a status means, in words. Never NULL; not to be freed. */
const char *pw_status_text(pw_status status);

/*
 * The errno that says about the same, for programs that report errors in that way; 0 for PW_OK and
 * for a number that is no status.
 */
int32_t pw_status_errno(pw_status status);

/*
 * Writes an error as one line into `text`, which has space for `size` bytes with the NUL at the
 * end, and cuts it off there. Returns how long the whole line is, without the NUL, as snprintf
 * does; 0 if `error` is NULL.
 */
size_t pw_error_text(const pw_error *error, char *text, size_t size);

/* -------------------------------------------------------------------------------------------------
 * Which library this is.
 */

/* The number of this interface. A program that was compiled with another one must not go on. */
#define PW_ABI 1

/*
 * The number of the interface that the library has: PW_ABI, or the program was compiled for
 * another one.
 */
uint32_t pw_abi(void);

/* The version of the library, for people: "0.1.0". Not to be freed. */
const char *pw_version(void);

/* -------------------------------------------------------------------------------------------------
 * How long to wait: an absolute time, so that a call can be made again with the same one.
 */

/*
 * A time of CLOCK_MONOTONIC in nanoseconds, after which a call gives up. It is absolute, so a call
 * that a signal interrupts is made again with the same one. A time in the past does not wait.
 */
typedef int64_t pw_deadline;

/* Waits for as long as it takes. */
#define PW_NEVER INT64_MAX

/* The time so many milliseconds from now. A negative number is in the past. */
pw_deadline pw_in_ms(int64_t ms);

/*
 * The time so many nanoseconds from now. A negative number is in the past; INT64_MAX is PW_NEVER.
 */
pw_deadline pw_in_ns(int64_t ns);

/* Nanoseconds that are left until then: 0 if it has passed, INT64_MAX if it never does. */
int64_t pw_left_ns(pw_deadline deadline);

/* -------------------------------------------------------------------------------------------------
 * Bytes that are lent, and memory that the library grows.
 */

/*
 * Bytes that are lent: the library's until the next call on the handle that they came from, or the
 * program's for the length of a call.
 */
typedef struct pw_bytes {
    /* The first; may be NULL if there are none. */
    const void *data;
    /* How many. */
    size_t len;
} pw_bytes;

/* Memory that the library lends, to be written. */
typedef struct pw_space {
    /* Where it begins; may be NULL if there is none. */
    void *data;
    /* How many bytes. */
    size_t len;
} pw_space;

/*
 * Memory that the library grows as getline does, to be used again and again. A program sets it to
 * PW_BUFFER before the first use, reads `data` and `len`, and gives it to pw_buffer_free in the
 * end. One thread at a time.
 */
typedef struct pw_buffer {
    /* What is in it. It may move with every call that fills the buffer. */
    void *data;
    /* How many bytes. */
    size_t len;
    /* How much memory there is. Only the library writes this. */
    size_t capacity;
} pw_buffer;

/* An empty buffer, to initialise one with. */
#define PW_BUFFER {NULL, 0, 0}

/*
 * Makes space for `capacity` bytes in all, so that a call which needs no more does not ask for
 * memory. What is in the buffer stays there.
 *
 * Fails with PW_OS and ENOMEM if there is no memory.
 */
pw_status pw_buffer_reserve(pw_buffer *buffer, size_t capacity, pw_error *error);

/* Gives the memory back. The buffer is empty then, and may be used again. NULL is allowed. */
void pw_buffer_free(pw_buffer *buffer);

/* -------------------------------------------------------------------------------------------------
 * What becomes of a descriptor that is passed in.
 */

/* What becomes of a descriptor that is passed in: one of PW_FD_TAKE, PW_FD_DUP and PW_FD_LEND. */
typedef uint32_t pw_fd_how;

/* It is the library's from then on, which closes it; also where the call fails. */
#define PW_FD_TAKE 1
/* It stays the program's; the library makes a duplicate for itself. */
#define PW_FD_DUP 2
/* It stays the program's, which keeps it open for as long as the handle lives. */
#define PW_FD_LEND 3

/* -------------------------------------------------------------------------------------------------
 * Room atomic: whole messages of any size from many writers over one pipe, FIFO or Unix stream
 * socket.
 *
 * A pipe keeps a write of up to 4096 bytes in one piece, and tears anything larger. Here a message
 * is cut into parts of that size, each with the name of its writer, and the reader puts them
 * together: each message comes out whole, once, and in the order of its writer. What a writer that
 * was killed did not finish is reported: when the pipe ends, or max_unfinished is exceeded, for
 * the reader cannot know sooner that nothing more comes.
 *
 * In mixed mode the same pipe carries ordinary text, too: a process prints to its stdout whatever
 * it likes, and sends messages through it at the same time. Text comes out where the kernel got
 * it, in pieces of up to 4096 bytes that stay together, and has no sender. Stdio keeps what it is
 * to print to a pipe: a program whose lines are to stay whole, and in order with its messages,
 * sets line buffering, setvbuf(stdout, NULL, _IOLBF, 0), or calls fflush before it sends.
 *
 * A pipe ends when its last writer is closed. A process that forks its writers closes its own.
 */

/* -------------------------------------------------------------------------------------------------
 * How the ends of a pipe are made, and what there is to know before.
 */

/*
 * How an end is made. Both ends of a pipe must agree on `mixed`, `compress` and the dictionary;
 * the rest is each end's own affair.
 */
typedef struct pw_atomic_options {
    /* sizeof(pw_atomic_options). */
    size_t size;
    /*
     * Reader: bytes of the largest message, compressed or not, and of the longest line that is
     * given out in one piece; 256 MiB by default.
     */
    size_t max_message;
    /*
     * Reader: bytes of all unfinished messages together. Past it, the one that waited longest is
     * given up and reported. 0, the default, is 8 times max_message, and at least 1 GiB.
     */
    size_t max_unfinished;
    /* Reader: how many bytes one read asks for, from 1 to 16 MiB; 64 KiB by default. */
    size_t read_size;
    /*
     * Writer: how many bytes may be pending before pw_writer_try_send takes no more; 1 MiB by
     * default.
     */
    size_t max_pending;
    /*
     * Mixed reader, not strict: for how long the rest of a part that has begun is waited for while
     * nothing comes, before it is text and its message is reported; 5 seconds by default. 0 is
     * right where all writers write into this very pipe, UINT64_MAX waits for the end.
     */
    uint64_t frame_timeout_ns;
    /* Reader: for how long it spins before it sleeps, up to 1 ms; 20 microseconds by default. */
    uint64_t spin_ns;
    /*
     * Raw bytes that resemble the messages, for instance one of them; none by default. They are
     * copied.
     */
    pw_bytes dictionary;
    /* Writer: the level of zstd, from -131072 (fastest) to 22 (smallest); 3 by default. */
    int32_t level;
    /* Ordinary text may lie between the messages. */
    bool mixed;
    /* Each message and burst is compressed with zstd. */
    bool compress;
    /*
     * Reader: frames without a checksum are taken although there is a dictionary, which may then
     * be a wrong one. Atomic::Pipe writes such frames.
     */
    bool accept_unchecked;
    /* Reader: items come with the zstd frame that held them. */
    bool keep_compressed;
    /* Mixed reader: a control byte 0x0E that opens no part or burst is PW_CORRUPT, and not text. */
    bool strict;
    /*
     * Mixed reader: bursts are looked for, which is the default. Without them, only messages lie
     * between text: for the output of programs that may print any bytes.
     */
    bool bursts;
    /*
     * Writer: where the descriptor is a terminal, a file or a device, messages are printed there
     * as lines. By default that is PW_INVALID, for nobody takes messages apart there.
     */
    bool or_print;
} pw_atomic_options;

/* Fills in the defaults. `size` is sizeof(pw_atomic_options). */
void pw_atomic_options_init(pw_atomic_options *options, size_t size);

/*
 * Makes a FIFO at `path` that only this user may open.
 *
 * Fails with PW_OS, and EEXIST if something is there already.
 */
pw_status pw_atomic_create_fifo(const char *path, pw_error *error);

/* A descriptor that is open for reading, for pw_atomic_read_fd. */
#define PW_READER 1
/* One that is open for writing, for pw_atomic_write_fd. */
#define PW_WRITER 2

/*
 * Finds out which end of a pipe a descriptor is: PW_READER or PW_WRITER.
 *
 * Fails with PW_INVALID if it is not open, no pipe or FIFO, or open for both, as every socket is.
 */
pw_status pw_atomic_which_end(int fd, uint32_t *end, pw_error *error);

/*
 * The largest capacity in bytes that an unprivileged user may give a pipe.
 *
 * Fails with PW_OS where /proc is not there.
 */
pw_status pw_atomic_max_capacity(size_t *bytes, pw_error *error);

/* -------------------------------------------------------------------------------------------------
 * What comes out of a pipe.
 */

/* A line of ordinary text, in pw_item.kind. */
#define PW_ITEM_LINE 1
/* A burst: bytes that were sent in one write, without a sender's name. */
#define PW_ITEM_BURST 2
/* A message, whole. */
#define PW_ITEM_MESSAGE 3
/* The report of a message or burst that is lost. */
#define PW_ITEM_TORN 4

/*
 * Names one writer. Writers that live at the same time have different ones, whatever their
 * processes and threads.
 */
typedef struct pw_key {
    /* The sender's process, as numbered in its own pid namespace. */
    int32_t pid;
    /* A random number, drawn for each writer and again after a fork. */
    int32_t tid;
} pw_key;

/* pw_atomic_options.max_message, in pw_item.limit. */
#define PW_LIMIT_MAX_MESSAGE 1
/* pw_atomic_options.max_unfinished. */
#define PW_LIMIT_MAX_UNFINISHED 2
/* What memory the system has left. */
#define PW_LIMIT_MEMORY 3

/*
 * What a reader gives out. Data is lent until the next call on the reader, pw_reader_free
 * included.
 */
typedef struct pw_item {
    /* What it is: PW_ITEM_MESSAGE, and so on. */
    uint32_t kind;
    /* Message and report: in how many parts it came, or how many of them had come. */
    uint32_t parts;
    /* Message and report: who sent it. Zeros where that is not known. */
    pw_key writer;
    /*
     * What was sent, or a line with its "\n", "\r\n" or "\r", which the last line before the end
     * may lack, and a piece of a line that is longer than max_message. NULL in a report.
     */
    const void *data;
    /* How many bytes. */
    size_t len;
    /* The zstd frame that it came in, if the reader keeps it; else NULL. */
    const void *compressed;
    /* How many bytes that has. */
    size_t compressed_len;
    /* Report: how many bytes of it had come. */
    size_t torn_bytes;
    /*
     * Report: why it is lost. PW_TORN: a part of it never came. PW_TOO_LONG: it is over `limit`.
     * PW_CORRUPT: it is not what was sent, or does not decompress. PW_INCOMPATIBLE: it is
     * compressed, and the reader does not decompress. Otherwise PW_OK.
     */
    pw_status torn;
    /* Report that says PW_TOO_LONG: which limit, as PW_LIMIT_MAX_MESSAGE. Otherwise 0. */
    uint32_t limit;
} pw_item;

/* -------------------------------------------------------------------------------------------------
 * The reading end.
 */

/*
 * The reading end of a pipe, FIFO or Unix stream socket. One thread at a time; pw_reader_clone
 * makes another for another thread. Only one process can read from a pipe in this way: a child
 * that was forked may use the reader if the parent had nothing buffered, and gets PW_STALE
 * otherwise. It is freed with pw_reader_free.
 */
typedef struct pw_reader pw_reader;

/*
 * Opens the FIFO at `path` for reading, at once. The pipe ends when its last writer has left;
 * before the first has come, calls wait for it.
 *
 * Fails with PW_INVALID if `path` is a symbolic link or no FIFO; PW_OS.
 */
pw_status pw_atomic_read_fifo(const char *path, const pw_atomic_options *options,
                              pw_reader **reader, pw_error *error);

/*
 * As pw_atomic_read_fifo, but the pipe never ends: when the last writer has left, what it did not
 * finish is reported, and calls wait for the next one. It needs /proc, and the right to open the
 * FIFO again later.
 *
 * Fails as pw_atomic_read_fifo.
 */
pw_status pw_atomic_listen_fifo(const char *path, const pw_atomic_options *options,
                                pw_reader **reader, pw_error *error);

/*
 * Reads from a descriptor: a pipe, a FIFO, or a connected stream socket of the Unix family.
 *
 * Fails with PW_INVALID if it is none of these, or not open for reading, which pw_error_text says;
 * PW_OS if no descriptor is left.
 */
pw_status pw_atomic_read_fd(int fd, pw_fd_how how, const pw_atomic_options *options,
                            pw_reader **reader, pw_error *error);

/* Closes this end; the pipe's reading end is closed with the last of its clones. */
void pw_reader_free(pw_reader *reader);

/*
 * Another reader of the same pipe, for another thread. Clones share one buffer: each item goes to
 * one of them.
 *
 * Fails with PW_OS if no descriptor is left.
 */
pw_status pw_reader_clone(pw_reader *reader, pw_reader **clone, pw_error *error);

/*
 * Waits for the next message.
 *
 * Fails with PW_CLOSED if the pipe has ended, and all is given out. PW_TORN, PW_TOO_LONG,
 * PW_CORRUPT: a message is lost; pw_reader_torn says whose, and the next call goes on. (Where it
 * says nothing, the stream makes no sense, and stays so.) PW_INCOMPATIBLE: the message is
 * compressed, and this reader does not decompress; or the messages are those of mixed mode, and
 * stay so. PW_TIMED_OUT and PW_INTERRUPTED: nothing is lost, call again. PW_INVALID in mixed mode,
 * where pw_reader_next_item gives out text, too. PW_STALE in a child, if the parent had read what
 * it had not used. PW_OS.
 */
pw_status pw_reader_recv(pw_reader *reader, pw_deadline deadline, pw_item *message,
                         pw_error *error);

/*
 * The next message if it is there, else PW_WOULD_BLOCK. It does not wait. Otherwise it is as
 * pw_reader_recv.
 */
pw_status pw_reader_try_recv(pw_reader *reader, pw_item *message, pw_error *error);

/*
 * Waits for the next line, burst, message or report of a lost message.
 *
 * Fails with PW_CLOSED if the pipe has ended, and all is given out. PW_CORRUPT: a plain stream
 * that makes no sense; with `strict`, what opens like a part and is none. PW_INCOMPATIBLE: a mixed
 * reader's stream begins with a message of plain mode, which is said once; who calls again gets it
 * as text. PW_TIMED_OUT, PW_INTERRUPTED, PW_STALE and PW_OS as pw_reader_recv.
 */
pw_status pw_reader_next_item(pw_reader *reader, pw_deadline deadline, pw_item *item,
                              pw_error *error);

/*
 * The next item if it is there, else PW_WOULD_BLOCK. It does not wait. Otherwise it is as
 * pw_reader_next_item.
 */
pw_status pw_reader_try_next_item(pw_reader *reader, pw_item *item, pw_error *error);

/*
 * Fills in the report of the loss that pw_reader_recv or pw_reader_try_recv told of last; false if
 * the last one told of none.
 */
bool pw_reader_torn(pw_reader *reader, pw_item *report);

/*
 * Puts the text of a line that has begun and not ended into `text`, as far as it has come; nothing
 * if there is none. It does not read: call it when pw_reader_try_next_item has nothing.
 */
pw_status pw_reader_peek(pw_reader *reader, pw_buffer *text, pw_error *error);

/*
 * By when to call again although the descriptor is not readable; PW_NEVER: not before it is. For
 * event loops, to be asked after a `try_` function had nothing: a part that waits for its rest
 * becomes text then, or there is more in the pipe than one call looks at.
 */
pw_deadline pw_reader_due(pw_reader *reader);

/*
 * Waits for bytes and reads them without looking at them, to make space for writers. `len` says
 * how many they are: up to the read size, and 0 at the end of the pipe.
 *
 * Fails with PW_TOO_LONG once max_unfinished bytes lie there; PW_TIMED_OUT; PW_INTERRUPTED;
 * PW_STALE; PW_OS.
 */
pw_status pw_reader_fill(pw_reader *reader, pw_deadline deadline, size_t *len, pw_error *error);

/* Whether the pipe has ended, and all is given out. It does not read: pw_reader_wait_eof does. */
bool pw_reader_is_eof(pw_reader *reader);

/*
 * Waits until it is known whether the pipe has ended, and all is given out; `is_eof` is false as
 * soon as something is there, be it the beginning of a message. It reads, and gives nothing out.
 *
 * Fails with PW_TIMED_OUT if neither has come. PW_INTERRUPTED; PW_CORRUPT and PW_INCOMPATIBLE as
 * pw_reader_next_item; PW_STALE; PW_OS.
 */
pw_status pw_reader_wait_eof(pw_reader *reader, pw_deadline deadline, bool *is_eof,
                             pw_error *error);

/*
 * Takes no more from the pipe, as if it had ended here. It does not wait.
 *
 * Fails with PW_STALE.
 */
pw_status pw_reader_finish(pw_reader *reader, pw_error *error);

/* How many bytes were read and not given out; 0 for NULL. */
size_t pw_reader_buffered(pw_reader *reader);

/*
 * Whether nothing is held: no bytes, no line that has begun, no part of a message. After
 * pw_reader_set_exact it is so between the messages of a single writer, and somebody else may read
 * on there.
 */
bool pw_reader_is_empty(pw_reader *reader);

/*
 * Whether somebody else reads from the same FIFO now, which both have opened by its path. Both get
 * pieces of the stream, and messages are lost to both.
 */
bool pw_reader_has_rival(pw_reader *reader);

/*
 * The descriptor, for an event loop, lent until the handle is freed; -1 for NULL. When it is
 * readable, call a `try_` function until that has nothing, and then pw_reader_due. A listener has
 * another one after its first call in a forked child. Between clones, an item may also wait in the
 * buffer that they share.
 */
int pw_reader_fd(pw_reader *reader);

/* Bytes that one read asks for; 0 for NULL. */
size_t pw_reader_read_size(pw_reader *reader);

/* Sets how many bytes one read asks for: from 1 to 16 MiB. NULL is allowed, here and below. */
void pw_reader_set_read_size(pw_reader *reader, size_t bytes);

/*
 * Makes reads stop at the end of the so many-th item from here on, and then of each further one,
 * so that what lies behind it stays in the pipe for somebody else. 0: they go ahead, as at first.
 * Reports of lost messages do not count. For each 64 KiB it costs two system calls and a copy.
 */
void pw_reader_set_exact(pw_reader *reader, uint64_t items);

/* Sets whether items come with the zstd frame that held them. */
void pw_reader_set_keep_compressed(pw_reader *reader, bool keep);

/* Whether text may lie between the messages. */
bool pw_reader_is_mixed(pw_reader *reader);

/*
 * Changes the mode for all that is not given out yet. Writers must do the same at the same place
 * of the stream.
 *
 * Fails with PW_WOULD_BLOCK while a line is unfinished; PW_STALE.
 */
pw_status pw_reader_set_mixed(pw_reader *reader, bool mixed, pw_error *error);

/*
 * Sets how messages are decompressed, for all that is not given out yet: as `compress`,
 * `dictionary` and `accept_unchecked` of the options say, whose other fields mean nothing here.
 * NULL: not at all.
 *
 * Fails with PW_INVALID if the level or the dictionary is none; PW_STALE.
 */
pw_status pw_reader_set_zstd(pw_reader *reader, const pw_atomic_options *options, pw_error *error);

/*
 * How many bytes the pipe holds before a writer waits.
 *
 * Fails with PW_UNSUPPORTED for a socket, here and below; PW_OS.
 */
pw_status pw_reader_capacity(pw_reader *reader, size_t *bytes, pw_error *error);

/*
 * Asks for a capacity; `now` says which one the kernel chose, at least as large.
 *
 * Fails with PW_OS, with EPERM past the limit of an unprivileged user, with EBUSY below what lies
 * in the pipe. The capacity stays as it was then.
 */
pw_status pw_reader_set_capacity(pw_reader *reader, size_t bytes, size_t *now, pw_error *error);

/* As pw_reader_set_capacity, with pw_atomic_max_capacity bytes at the most. */
pw_status pw_reader_set_capacity_or_max(pw_reader *reader, size_t bytes, size_t *now,
                                        pw_error *error);

/* -------------------------------------------------------------------------------------------------
 * The writing end, and pipes with both ends.
 */

/*
 * The writing end of a pipe, FIFO or Unix stream socket. One thread at a time; pw_writer_clone
 * makes another for another thread, and any number of processes can have theirs. In a child that
 * was forked it is a writer of its own, without what the parent had pending. It is freed with
 * pw_writer_free, or with pw_writer_close.
 */
typedef struct pw_writer pw_writer;

/*
 * Makes a new pipe. A child that shall print and send into it gets pw_writer_fd as its stdout, by
 * dup2, and makes a writer there: pw_atomic_write_fd(1, PW_FD_LEND, ..) with the same options.
 *
 * Fails with PW_INVALID if the level or the dictionary is none; PW_OS if no descriptor is left.
 */
pw_status pw_atomic_pair(const pw_atomic_options *options, pw_reader **reader, pw_writer **writer,
                         pw_error *error);

/*
 * Opens the FIFO at `path` for writing as soon as it has a reader.
 *
 * Fails with PW_TIMED_OUT: nobody reads it. PW_INTERRUPTED: call again. PW_INVALID if `path` is a
 * symbolic link or no FIFO; PW_OS.
 */
pw_status pw_atomic_write_fifo(const char *path, const pw_atomic_options *options,
                               pw_deadline deadline, pw_writer **writer, pw_error *error);

/*
 * Writes to a descriptor: a pipe, a FIFO, or a connected stream socket of the Unix family; with
 * `or_print`, to a terminal, a file or a device, too. Free the handle before you close a
 * descriptor that you have lent: that writes what is pending.
 *
 * Fails with PW_INVALID if it is none of these, or not open for writing, which pw_error_text says;
 * PW_OS if no descriptor is left.
 */
pw_status pw_atomic_write_fd(int fd, pw_fd_how how, const pw_atomic_options *options,
                             pw_writer **writer, pw_error *error);

/*
 * Writes what is pending, for as long as that takes, and closes this end. pw_writer_close has a
 * deadline, and pw_writer_discard drops what is pending.
 */
void pw_writer_free(pw_writer *writer);

/*
 * Writes what is pending and frees the handle, in any case: after a failure, what is left is
 * dropped.
 *
 * Fails as pw_writer_flush, which is to be called first where a signal must not drop anything.
 */
pw_status pw_writer_close(pw_writer *writer, pw_deadline deadline, pw_error *error);

/*
 * Another writer of the same pipe with a key of its own, for another thread. What is pending stays
 * here.
 *
 * Fails with PW_OS if no descriptor is left.
 */
pw_status pw_writer_clone(pw_writer *writer, pw_writer **clone, pw_error *error);

/*
 * Sends one message, after what is pending, and waits until all of it is in the pipe. `parts` says
 * in how many parts, at least 1.
 *
 * After any failure the message is not delivered, and may be sent again. Fails with PW_TIMED_OUT:
 * parts that were in the pipe already reach the reader as a report. PW_INTERRUPTED, if nothing was
 * in the pipe yet: later signals do not interrupt. PW_CLOSED: nobody reads; what was pending is
 * dropped. PW_TOO_LONG: more parts than can be counted. PW_CORRUPT: the kernel has cut a write
 * that POSIX promises to keep whole. PW_OS.
 */
pw_status pw_writer_send(pw_writer *writer, const void *data, size_t len, pw_deadline deadline,
                         uint32_t *parts, pw_error *error);

/*
 * Sends one message, and does not wait. What the pipe has no space for is pending, and is written
 * by the next call that writes, or when the handle is freed. PW_WOULD_BLOCK, and nothing is taken,
 * if more than max_pending bytes would be pending. A longer message than that is taken if nothing
 * is pending and the pipe has space for its first part. PW_OK may mean that nothing of it is
 * written yet: pw_writer_pending says.
 *
 * Fails with PW_CLOSED, PW_TOO_LONG, PW_CORRUPT and PW_OS as pw_writer_send.
 */
pw_status pw_writer_try_send(pw_writer *writer, const void *data, size_t len, uint32_t *parts,
                             pw_error *error);

/*
 * Sends `count` messages in their order, several small ones in one write, and waits until all are
 * in the pipe. `sent`, which must not be NULL, says how many were sent whole: fewer if the
 * deadline has passed or a signal came in between; then send the rest again.
 *
 * Fails as pw_writer_send, if not one was sent.
 */
pw_status pw_writer_send_many(pw_writer *writer, const pw_bytes *messages, size_t count,
                              pw_deadline deadline, size_t *sent, pw_error *error);

/*
 * Puts one message behind what is pending, and writes nothing: for programs that call
 * pw_writer_flush. It has no limit but memory.
 *
 * Fails with PW_TOO_LONG as pw_writer_send.
 */
pw_status pw_writer_enqueue(pw_writer *writer, const void *data, size_t len, uint32_t *parts,
                            pw_error *error);

/*
 * Sends bytes in one write, after what is pending, without a sender's name: in mixed mode between
 * two control bytes, in plain mode as they are, for a reader that is not of this kind.
 *
 * Fails with PW_TOO_LONG if they do not fit in one write, as pw_writer_fits_in_burst says.
 * PW_INVALID in mixed mode without compression, if they hold 0x0E or 0x0F, or begin with 0x10:
 * they can go as a message. PW_TIMED_OUT, PW_INTERRUPTED, PW_CLOSED, PW_OS: they were not sent.
 */
pw_status pw_writer_burst(pw_writer *writer, const void *data, size_t len, pw_deadline deadline,
                          pw_error *error);

/* As pw_writer_burst, without waiting; what is pending and PW_WOULD_BLOCK as pw_writer_try_send. */
pw_status pw_writer_try_burst(pw_writer *writer, const void *data, size_t len, pw_error *error);

/*
 * Says whether bytes fit in a burst, and how many it takes in the pipe then, 0 otherwise. Where
 * messages are compressed, this compresses.
 *
 * Fails with PW_TOO_LONG if they are too long for zstd.
 */
pw_status pw_writer_fits_in_burst(pw_writer *writer, const void *data, size_t len, bool *fits,
                                  size_t *in_pipe, pw_error *error);

/* How many bytes are taken and not yet written; 0 for NULL. */
size_t pw_writer_pending(pw_writer *writer);

/*
 * Writes what is pending; small messages share writes.
 *
 * Fails with PW_TIMED_OUT and PW_INTERRUPTED: the rest is still pending, call again. PW_CLOSED,
 * PW_CORRUPT and PW_OS: what was pending is dropped.
 */
pw_status pw_writer_flush(pw_writer *writer, pw_deadline deadline, pw_error *error);

/*
 * Writes what the pipe has space for; PW_WOULD_BLOCK while anything is still pending. Otherwise it
 * is as pw_writer_flush.
 */
pw_status pw_writer_try_flush(pw_writer *writer, pw_error *error);

/*
 * Drops what is pending. A message that was written in part reaches the reader as a report. NULL
 * is allowed.
 */
void pw_writer_discard(pw_writer *writer);

/* The key under which the next message goes out; zeros for NULL. */
pw_key pw_writer_key(pw_writer *writer);

/*
 * The pipe's descriptor, lent until the handle is freed; -1 for NULL. A child may get it as its
 * stdout, and an event loop may poll it for writing.
 */
int pw_writer_fd(pw_writer *writer);

/*
 * Bytes of the largest write that the kernel never splits: 4096, or less for a socket with small
 * buffers; 0 for NULL.
 */
size_t pw_writer_pipe_buf(pw_writer *writer);

/*
 * Bytes of the largest message, as it is in the pipe, that goes out as a single part; 0 for NULL.
 */
size_t pw_writer_max_part(pw_writer *writer);

/* Whether messages are printed as lines: see pw_atomic_options.or_print. */
bool pw_writer_is_printing(pw_writer *writer);

/* Whether text may lie between the messages. */
bool pw_writer_is_mixed(pw_writer *writer);

/*
 * Changes the mode. The reader must do the same at the same place of the stream.
 *
 * Fails with PW_WOULD_BLOCK while anything is pending.
 */
pw_status pw_writer_set_mixed(pw_writer *writer, bool mixed, pw_error *error);

/*
 * Sets how messages are compressed from now on: as `compress`, `level` and `dictionary` of the
 * options say, whose other fields mean nothing here. NULL: not at all.
 *
 * Fails with PW_INVALID if the level or the dictionary is none. What was set before stays then.
 */
pw_status pw_writer_set_zstd(pw_writer *writer, const pw_atomic_options *options, pw_error *error);

/* Sets how many bytes may be pending before pw_writer_try_send takes no more. NULL is allowed. */
void pw_writer_set_max_pending(pw_writer *writer, size_t bytes);

/*
 * Sets a function that is asked, while a call waits, whether to go on: after each signal handler,
 * and every 250 ms. After a false the call ends with PW_INTERRUPTED, also inside a message, which
 * is then given up and not delivered; nothing else interrupts it. For languages that run their
 * signal handlers themselves. The function must return, and not by a jump; it is called in the
 * thread that waits, and must not use this writer. NULL takes it away; a NULL `writer` is allowed.
 */
void pw_writer_set_interrupt_check(pw_writer *writer, bool (*go_on)(void));

/*
 * How many bytes the pipe holds before a writer waits.
 *
 * Fails with PW_UNSUPPORTED for a socket, here and below; PW_OS.
 */
pw_status pw_writer_capacity(pw_writer *writer, size_t *bytes, pw_error *error);

/*
 * Asks for a capacity; `now` says which one the kernel chose, at least as large. Fails as
 * pw_reader_set_capacity.
 */
pw_status pw_writer_set_capacity(pw_writer *writer, size_t bytes, size_t *now, pw_error *error);

/* As pw_writer_set_capacity, with pw_atomic_max_capacity bytes at the most. */
pw_status pw_writer_set_capacity_or_max(pw_writer *writer, size_t bytes, size_t *now,
                                        pw_error *error);

/* -------------------------------------------------------------------------------------------------
 * Room reqrep: request and response over shared memory. Many clients, many competing servers, no
 * broker.
 *
 * A segment is a file in shared memory, at a path or without a name. Clients put requests into it,
 * each request goes to one of the servers, and each reply goes back to the client that asked. Any
 * process may be killed at any instruction: the others go on, a caller gets PW_PEER_DIED within
 * 250 ms of the kernel closing that process's files, and what the dead process held is taken back.
 *
 * A ticket, 64 bits and never 0, stands for a call: on both sides, from when the request is sent
 * until its reply is received.
 *
 * A call has a slot, and these end it: its client receives what came of it; or its client cancels
 * it before a server takes it; or, once a server has it and nobody waits any more, that server
 * answers or gives it up. So one thread that sends more calls than there are slots receives in
 * between: pw_client_try_send, and when that has no slot pw_client_recv_any. And a server answers
 * each request that it has taken, also where `wanted` is false, with pw_server_reply or
 * pw_server_fail.
 *
 * Make slots as long as the usual request and reply: what is longer goes in parts, for which the
 * two sides take turns. A server that has a part to give waits until the client takes it. Who
 * waits for one call takes the parts of the client's other calls as well, but for streams, and
 * only now and then: one thread with several long calls in progress is quickest with
 * pw_client_recv_any and slots that hold its requests, or with a thread for each call. A client
 * that takes no parts for part_timeout_ns loses the call, with PW_FAILED.
 */

/* -------------------------------------------------------------------------------------------------
 * How a segment is made or opened, and what it reports as a whole.
 */

/*
 * A segment that this process has opened. Any threads may use one at the same time. What was made
 * from it lives on when it is freed, with pw_segment_free.
 */
typedef struct pw_segment pw_segment;

/* Not said: the default where a segment is made, any where one is opened. */
#define PW_UNSET UINT32_MAX

/*
 * How a segment is made or opened. One that is opened has its sizes already: those that are set
 * here must be the same.
 */
typedef struct pw_reqrep_options {
    /* sizeof(pw_reqrep_options). */
    size_t size;
    /*
     * How many calls can be in progress at the same time, in all clients together: 1 to 2^20, or
     * PW_UNSET for 256. Further callers wait in line.
     */
    uint32_t slots;
    /*
     * How many entries the queue of waiting requests has, cancelled ones included, or PW_UNSET for
     * twice the slots, which is enough.
     */
    uint32_t queue;
    /*
     * Bytes of the largest request of one part, or PW_UNSET for 4096. A longer one goes in parts.
     */
    uint32_t request_bytes;
    /* Bytes of the largest reply of one part, or PW_UNSET for 4096. */
    uint32_t reply_bytes;
    /*
     * How many clients and servers can be attached at the same time: 1 to 65535, or PW_UNSET for
     * 256.
     */
    uint32_t members;
    /* Permissions of the file; 0600 by default. */
    uint32_t mode;
    /* Bytes of the largest segment to open; UINT64_MAX, the default, is no limit. */
    uint64_t max_bytes;
    /*
     * For how long clients and servers spin before they park, up to 1 ms; 20 microseconds by
     * default.
     */
    uint64_t spin_ns;
    /* Payloads are single numbers, for the functions that end with `_int`. */
    bool integers;
    /* Memory for payloads is taken when they are first written, and not all at once. */
    bool sparse;
    /* A segment that belongs to another user may be opened. */
    bool any_owner;
} pw_reqrep_options;

/* Fills in the defaults. `size` is sizeof(pw_reqrep_options). */
void pw_reqrep_options_init(pw_reqrep_options *options, size_t size);

/*
 * Makes a segment at `path`, which must not exist. The name appears when the segment is complete.
 *
 * Fails with PW_INVALID for impossible sizes; PW_OS with EEXIST if the file exists, with ENOSPC if
 * the file system is full, and so on.
 */
pw_status pw_reqrep_create(const char *path, const pw_reqrep_options *options,
                           pw_segment **segment, pw_error *error);

/*
 * Opens the segment at `path`.
 *
 * Fails with PW_OS and ENOENT if there is no such file; PW_INVALID for a symbolic link, for
 * anything but a regular file, and for another user's file; PW_INCOMPATIBLE for a file that is no
 * segment, one of another format or with other sizes than were set, and for a copy; PW_CORRUPT for
 * one that was damaged or cut short; PW_TOO_LONG for one larger than max_bytes.
 */
pw_status pw_reqrep_open(const char *path, const pw_reqrep_options *options, pw_segment **segment,
                         pw_error *error);

/*
 * Opens the segment at `path`, or makes it if there is none. If several processes do this at the
 * same time, one of them makes it. An empty regular file of this user counts as none: the segment
 * replaces it. Fails as pw_reqrep_open and pw_reqrep_create.
 */
pw_status pw_reqrep_open_or_create(const char *path, const pw_reqrep_options *options,
                                   pw_segment **segment, pw_error *error);

/*
 * Makes a segment without a name, for threads and for processes that are forked from this one.
 * Fails as pw_reqrep_create.
 */
pw_status pw_reqrep_anonymous(const pw_reqrep_options *options, pw_segment **segment,
                              pw_error *error);

/*
 * As pw_reqrep_anonymous; `name`, in UTF-8, shows up in /proc/PID/maps. Other processes open the
 * descriptor that pw_segment_fd returns, when they were given it.
 */
pw_status pw_reqrep_memfd(const char *name, const pw_reqrep_options *options, pw_segment **segment,
                          pw_error *error);

/* Opens the segment behind a descriptor, with PW_FD_TAKE or PW_FD_DUP. Fails as pw_reqrep_open. */
pw_status pw_reqrep_open_fd(int fd, pw_fd_how how, const pw_reqrep_options *options,
                            pw_segment **segment, pw_error *error);

/* What a segment was made with. It never changes. */
typedef struct pw_geometry {
    /* How many calls can be in progress at the same time. */
    uint32_t slots;
    /* Cells of the ring of waiting requests. */
    uint32_t queue;
    /* Bytes of the largest request of one part. */
    uint32_t request_bytes;
    /* Bytes of the largest reply of one part. */
    uint32_t reply_bytes;
    /* How many clients and servers can be attached at the same time. */
    uint32_t members;
    /* 1 if payloads are single numbers, else 0. */
    uint32_t integers;
} pw_geometry;

/*
 * Fills in the sizes of the segment at `path`, without opening it for anything else: to report
 * them where pw_reqrep_open refused it. `size` is sizeof(pw_geometry). Fails as pw_reqrep_open, as
 * far as the file itself is concerned.
 */
pw_status pw_reqrep_geometry(const char *path, pw_geometry *geometry, size_t size, pw_error *error);

/*
 * Frees the handle. Clients and servers that were made from it stay as they are, and so does the
 * file.
 */
void pw_segment_free(pw_segment *segment);

/* Fills in the sizes of a segment. `size` is sizeof(pw_geometry). */
pw_status pw_segment_geometry(pw_segment *segment, pw_geometry *geometry, size_t size,
                              pw_error *error);

/*
 * The path at which the segment was made or opened, lent until it is freed; NULL for one without a
 * name.
 */
const char *pw_segment_path(pw_segment *segment);

/*
 * The descriptor of the file, lent until the handle is freed; -1 for NULL. It can be passed on to
 * processes that open it with pw_reqrep_open_fd.
 */
int pw_segment_fd(pw_segment *segment);

/*
 * How many requests wait for a server; 0 for NULL. Cancelled calls count until a server passes
 * them.
 */
size_t pw_segment_len(pw_segment *segment);

/*
 * Removes its name, if that still leads to this segment, which `removed` says. Attached clients
 * and servers stay attached.
 *
 * Fails with PW_INVALID for a segment without a name; PW_OS.
 */
pw_status pw_segment_unlink(pw_segment *segment, bool *removed, pw_error *error);

/*
 * Writes the segment to the storage that its file lies on, if there is one, and waits until that
 * is done.
 *
 * Fails with PW_OS.
 */
pw_status pw_segment_sync(pw_segment *segment, pw_error *error);

/*
 * Recovers what dead members held; `dead` says how many had died. Clients that wait do so by
 * themselves.
 *
 * Fails with PW_OS if the kernel does not say which members are alive; PW_CORRUPT.
 */
pw_status pw_segment_recover(pw_segment *segment, size_t *dead, pw_error *error);

/*
 * What was done in a segment, by all members that there were. A process that is killed may leave
 * its last step uncounted.
 */
typedef struct pw_stats {
    /* Calls begun. */
    uint64_t requests;
    /* Requests that servers have answered or given up. */
    uint64_t replies;
    /* Times that a client found no free slot. */
    uint64_t full;
    /* Times that a server found no request. */
    uint64_t empty;
    /* Calls cancelled, including those that timed out. */
    uint64_t cancelled;
    /* Members that died without leaving. */
    uint64_t dead_members;
    /* Slots that were recovered from them. */
    uint64_t recovered;
    /* Requests that went to another server because theirs had died. */
    uint64_t redelivered;
} pw_stats;

/* Fills in what was done so far. `size` is sizeof(pw_stats). */
pw_status pw_segment_stats(pw_segment *segment, pw_stats *stats, size_t size, pw_error *error);

/* A client, in pw_member.role. */
#define PW_CLIENT 1
/* A server, in pw_member.role. */
#define PW_SERVER 2

/* An attached client or server. */
typedef struct pw_member {
    /* When it attached, in nanoseconds since 1970. */
    int64_t since_ns;
    /* Its number, counted from 1. */
    uint32_t number;
    /* PW_CLIENT or PW_SERVER. */
    uint32_t role;
    /* Its process, as numbered in its own pid namespace. For people. */
    uint32_t pid;
    /* 0 if it died and was not recovered yet, else 1. */
    uint32_t is_alive;
} pw_member;

/*
 * Fills in up to `max` of the attached members; `count`, which must not be NULL, says how many
 * there are in all.
 *
 * Fails with PW_OS if the kernel does not say which members are alive; PW_CORRUPT.
 */
pw_status pw_segment_members(pw_segment *segment, pw_member *members, size_t max, size_t *count,
                             pw_error *error);

/*
 * How many slots of a segment are in each state. In a segment that is in use, the counts are not
 * of one moment.
 */
typedef struct pw_audit {
    /* Not in use. */
    uint64_t free;
    /* A client is writing its request. */
    uint64_t filling;
    /* Its request waits for a server. */
    uint64_t waiting;
    /* A server has its request. */
    uint64_t taken;
    /* A server has its request, and the call was cancelled. */
    uint64_t dropped;
    /* A server has its request, and it is the client's turn. */
    uint64_t in_parts;
    /* Its reply waits for the client. */
    uint64_t done;
    /* Its word is none that a member of ours writes. */
    uint64_t damaged;
    /* Of all these: held by a member that is gone. Recovery frees them. */
    uint64_t orphaned;
    /* Of those waiting: not in the ring. */
    uint64_t unqueued;
    /* Entries of the ring, including those of cancelled calls. */
    uint64_t entries;
} pw_audit;

/*
 * Counts the slots in each state. `size` is sizeof(pw_audit).
 *
 * Fails with PW_OS if the kernel does not say which members are alive; PW_CORRUPT.
 */
pw_status pw_segment_audit(pw_segment *segment, pw_audit *audit, size_t size, pw_error *error);

/* -------------------------------------------------------------------------------------------------
 * The calling end.
 */

/*
 * Sends requests and gets their replies. Any threads may use one at the same time. A child that
 * was forked may use it, as a member of its own; calls in progress stay the parent's. It is freed
 * with pw_client_free.
 */
typedef struct pw_client pw_client;

/* How a client calls. */
typedef struct pw_client_options {
    /* sizeof(pw_client_options). */
    size_t size;
    /* Bytes of the longest message in parts that it sends or receives; 256 MiB by default. */
    size_t max_message;
    /* How many calls may be in progress at a time; 0, the default, is no limit. */
    uint32_t max_in_flight;
    /*
     * How many times another server may get a request after a server died with it: up to 3, and 0
     * by default. For requests that may be carried out twice. A call of which a part was asked for
     * or given fails with PW_PEER_DIED all the same, since no copy of it is kept.
     */
    uint8_t redeliveries;
    /* A call fails with PW_NO_SERVER where no server is attached, instead of waiting for one. */
    bool needs_server;
} pw_client_options;

/* Fills in the defaults. `size` is sizeof(pw_client_options). */
void pw_client_options_init(pw_client_options *options, size_t size);

/*
 * Attaches a client.
 *
 * Fails with PW_WOULD_BLOCK if all places for members are taken; PW_CORRUPT if the segment was
 * damaged; PW_OS.
 */
pw_status pw_reqrep_client(pw_segment *segment, const pw_client_options *options,
                           pw_client **client, pw_error *error);

/*
 * Sends a request and waits for its reply, whose bytes replace what `reply` holds.
 *
 * Waits until the deadline, which covers sending and receiving. After PW_FAILED, `reply` holds the
 * reason that the server gave, if it gave one; after any other failure it is empty. It must not be
 * where the request lies.
 *
 * Fails with PW_TIMED_OUT and PW_INTERRUPTED: the call is cancelled, but a server may have begun
 * with it; to go on after a signal, use pw_client_send and pw_client_recv. PW_PEER_DIED: its
 * server has died. PW_FAILED: its server gave it up. PW_TOO_LONG: the request or the reply is
 * longer than max_message. PW_NO_SERVER: there is none, and needs_server was set. PW_CORRUPT: the
 * segment was damaged. PW_OS.
 */
pw_status pw_client_call(pw_client *client, const void *data, size_t len, uint32_t flags,
                         pw_deadline deadline, pw_buffer *reply, uint32_t *reply_flags,
                         pw_error *error);

/*
 * As pw_client_call, into memory of the program's: `space` bytes at `into`, which must not be
 * where the request lies. `reply_len` says how long the reply is.
 *
 * Fails as pw_client_call; with PW_TOO_LONG, too, if the reply is longer than `space`. The reply
 * is lost then, and so is the reason after PW_FAILED: pw_client_send and pw_client_recv_into keep
 * both.
 */
pw_status pw_client_call_into(pw_client *client, const void *data, size_t len, uint32_t flags,
                              pw_deadline deadline, void *into, size_t space, size_t *reply_len,
                              uint32_t *reply_flags, pw_error *error);

/*
 * Sends a request; `ticket` is what its reply is received by. As many calls may be in progress as
 * the segment has slots; a reply that was not received keeps its slot: see room reqrep in
 * pipework(3).
 *
 * Waits until a slot is free, or until the deadline; with a request that is longer than a slot,
 * until a server has taken all but the last part of it.
 *
 * Fails as pw_client_call, but never with PW_PEER_DIED or PW_FAILED: of a server that dies or
 * gives up while it takes the parts, pw_client_recv tells. Whatever the failure is, no server has
 * the whole request, which can be sent again.
 */
pw_status pw_client_send(pw_client *client, const void *data, size_t len, uint32_t flags,
                         pw_deadline deadline, uint64_t *ticket, pw_error *error);

/*
 * Sends a request if a slot is free, else PW_WOULD_BLOCK. It does not wait.
 *
 * Fails as pw_client_send, but never with PW_TIMED_OUT or PW_INTERRUPTED; with PW_TOO_LONG if the
 * request is longer than a slot.
 */
pw_status pw_client_try_send(pw_client *client, const void *data, size_t len, uint32_t flags,
                             uint64_t *ticket, pw_error *error);

/*
 * Sends `count` requests with the same flags, and wakes servers once for all of them. `tickets`
 * has space for as many; `sent`, which must not be NULL, says how many of them were sent: fewer if
 * a failure came in between, which comes again with the next call.
 *
 * Waits until there was a slot for each, or until the deadline.
 *
 * Fails as pw_client_send, if none could be sent.
 */
pw_status pw_client_send_many(pw_client *client, const pw_bytes *requests, size_t count,
                              uint32_t flags, pw_deadline deadline, uint64_t *tickets,
                              size_t *sent, pw_error *error);

/*
 * Waits for the reply of a call, whose bytes replace what `reply` holds. After PW_FAILED, `reply`
 * holds the reason that the server gave, if it gave one.
 *
 * Fails with PW_TIMED_OUT and PW_INTERRUPTED: the call goes on, call again. PW_PEER_DIED,
 * PW_FAILED, PW_NO_SERVER: it is over. PW_TOO_LONG: the reply is longer than max_message, and the
 * call is over. PW_STALE: it was over already, or is not this client's. PW_CORRUPT. PW_OS: with
 * ENOMEM it is over, with any other number it goes on.
 */
pw_status pw_client_recv(pw_client *client, uint64_t ticket, pw_deadline deadline,
                         pw_buffer *reply, uint32_t *flags, pw_error *error);

/*
 * The reply of a call if it has come, else PW_WOULD_BLOCK. It does not wait. Otherwise it is as
 * pw_client_recv.
 */
pw_status pw_client_try_recv(pw_client *client, uint64_t ticket, pw_buffer *reply, uint32_t *flags,
                             pw_error *error);

/*
 * As pw_client_recv, into memory of the program's: `space` bytes at `into`. `len` says how long
 * the reply is.
 *
 * Fails as pw_client_recv; with PW_TOO_LONG, too, if the reply is longer than `space`: then the
 * call goes on, and pw_client_reply_len says how much space it needs. A reply that comes in parts
 * is put together first, and is over then.
 */
pw_status pw_client_recv_into(pw_client *client, uint64_t ticket, pw_deadline deadline, void *into,
                              size_t space, size_t *len, uint32_t *flags, pw_error *error);

/*
 * Waits for whichever call of this client ends next: of all that were sent and not received, but
 * no streams. Look at `ticket` first.
 *
 * Where it is not 0, that call is over, and what this returns is how it has ended, with its reply
 * or reason, as pw_client_recv does. Where it is 0 with PW_OK, no call was in progress, and there
 * was nothing to wait for. Where it is 0 with anything else, the wait has failed.
 *
 * The wait fails with PW_TIMED_OUT, PW_INTERRUPTED, PW_CORRUPT and PW_OS.
 */
pw_status pw_client_recv_any(pw_client *client, pw_deadline deadline, uint64_t *ticket,
                             pw_buffer *reply, uint32_t *flags, pw_error *error);

/* How many bytes of a call's reply have come; 0 if none have. A hint: more may come right after. */
size_t pw_client_reply_len(pw_client *client, uint64_t ticket);

/*
 * Cancels a call. `cancelled` is false if its reply is there: then it is to be received. A server
 * that has the request finds out when it replies, and the call keeps its slot until then.
 *
 * Fails with PW_STALE if the call is over already, or is not this client's.
 */
pw_status pw_client_cancel(pw_client *client, uint64_t ticket, bool *cancelled, pw_error *error);

/*
 * Gives up the reply of a call, and not the call: its request is carried out, also after this
 * client was freed or this process has ended.
 *
 * Fails as pw_client_cancel.
 */
pw_status pw_client_forget(pw_client *client, uint64_t ticket, pw_error *error);

/*
 * Forgets every call in progress, and returns how many they were; 0 for NULL. Before
 * pw_client_free, so that no request that was sent is taken back. In a forked child that has not
 * used the client there are none.
 */
size_t pw_client_forget_all(pw_client *client);

/*
 * The index of the slot that a ticket names: below pw_geometry.slots, if it is a ticket of that
 * segment.
 */
uint32_t pw_ticket_slot(uint64_t ticket);

/* How many calls are in progress: sent, and their replies not received; 0 for NULL. */
size_t pw_client_pending(pw_client *client);

/*
 * A descriptor for an event loop, readable while there is something to receive: a reply, or a
 * failure in its place. It is the program's to close, and not to be read from. When it is
 * readable, try to receive each call in progress; as soon as nothing is left, it is not readable
 * any more. A forked child asks for one of its own.
 *
 * Fails with PW_OS if no descriptor is left, or no thread can be started.
 */
pw_status pw_client_doorbell(pw_client *client, int *fd, pw_error *error);

/*
 * As pw_client_doorbell, but readable while a request can be sent: until pw_client_try_send finds
 * no slot.
 */
pw_status pw_client_send_doorbell(pw_client *client, int *fd, pw_error *error);

/* The segment that a client is attached to, lent until the client is freed; NULL for NULL. */
pw_segment *pw_client_segment(pw_client *client);

/* Leaves the segment. A request that no server has taken is taken back, unless it was forgotten. */
void pw_client_free(pw_client *client);

/* -------------------------------------------------------------------------------------------------
 * A reply that is received part by part, as its server gives it.
 */

/*
 * The parts of a reply. One thread at a time. Freeing it, with pw_stream_free, before its end
 * cancels the call, which the server is told with its next part.
 */
typedef struct pw_stream pw_stream;

/*
 * Sends a request whose reply is received part by part. A server that answers at once gives one
 * part. An empty last reply only ends the stream.
 *
 * Waits and fails as pw_client_send.
 */
pw_status pw_client_stream(pw_client *client, const void *data, size_t len, uint32_t flags,
                           pw_deadline deadline, pw_stream **stream, pw_error *error);

/*
 * Waits for the next part, whose bytes replace what `part` holds.
 *
 * Fails with PW_CLOSED after the last. PW_TIMED_OUT and PW_INTERRUPTED: the stream goes on, call
 * again. It is over after anything else: PW_FAILED, where `part` holds the reason that the server
 * gave, if it gave one; PW_PEER_DIED, PW_NO_SERVER, PW_TOO_LONG, PW_CORRUPT and PW_OS as
 * pw_client_recv.
 */
pw_status pw_stream_next_part(pw_stream *stream, pw_deadline deadline, pw_buffer *part,
                              uint32_t *flags, pw_error *error);

/* Ends the call, if it is not over. */
void pw_stream_free(pw_stream *stream);

/* -------------------------------------------------------------------------------------------------
 * The answering end. Requests are answered by their tickets.
 */

/*
 * Takes requests from a segment and answers them. Any threads may use one at the same time, and
 * any number of servers, in any number of processes, compete for the requests: each goes to one of
 * them. A child that was forked may use it, as a member of its own; requests taken before stay the
 * parent's. It is freed with pw_server_free.
 */
typedef struct pw_server pw_server;

/*
 * A request that a server has taken, and that no other server gets. It is answered by its ticket,
 * once: with pw_server_reply or pw_server_fail. It keeps its slot until then, or until the server
 * is freed, also if nobody waits for it any more.
 */
typedef struct pw_request {
    /* What stands for the call; the same that pw_client_send has given out. */
    uint64_t ticket;
    /* Where its bytes begin in the buffer: 0, unless several requests came in it. */
    size_t offset;
    /* How many they are. */
    size_t len;
    /* The 32 bits that the client sent with it. */
    uint32_t flags;
    /* How many servers have died with this request. */
    uint16_t redeliveries;
    /* The client has more parts of it, for pw_server_next_part. Only after pw_server_claim. */
    bool has_more;
} pw_request;

/* How a server answers. */
typedef struct pw_server_options {
    /* sizeof(pw_server_options). */
    size_t size;
    /*
     * Bytes of the longest message in parts that it receives or answers with; 256 MiB by default.
     */
    size_t max_message;
    /*
     * For how long a client may keep it waiting in the middle of a call that goes in parts; 10
     * seconds by default.
     */
    uint64_t part_timeout_ns;
} pw_server_options;

/* Fills in the defaults. `size` is sizeof(pw_server_options). */
void pw_server_options_init(pw_server_options *options, size_t size);

/* Attaches a server. Fails as pw_reqrep_client. */
pw_status pw_reqrep_server(pw_segment *segment, const pw_server_options *options,
                           pw_server **server, pw_error *error);

/*
 * Waits for the next request, whose bytes replace what `data` holds.
 *
 * Fails with PW_TIMED_OUT; PW_INTERRUPTED; PW_CLOSED once the server was stopped; PW_CORRUPT if
 * the segment was damaged; PW_OS.
 */
pw_status pw_server_recv(pw_server *server, pw_deadline deadline, pw_buffer *data,
                         pw_request *request, pw_error *error);

/*
 * The next request if one waits, else PW_WOULD_BLOCK. It does not wait. Otherwise it is as
 * pw_server_recv.
 */
pw_status pw_server_try_recv(pw_server *server, pw_buffer *data, pw_request *request,
                             pw_error *error);

/*
 * Takes up to `max` requests: waits for the first, then takes those that are there, and for
 * `linger_ns` nanoseconds those that come. Their bytes are put one after the other into `data`,
 * where each request says its offset; `count` says how many they are.
 *
 * Fails as pw_server_recv. Requests that were taken before a failure are returned, and the failure
 * comes again with the next call.
 */
pw_status pw_server_recv_many(pw_server *server, size_t max, pw_deadline deadline,
                              uint64_t linger_ns, pw_buffer *data, pw_request *requests,
                              size_t *count, pw_error *error);

/*
 * As pw_server_recv_many, with the requests that wait now. It does not wait, and `count` may be 0.
 */
pw_status pw_server_drain(pw_server *server, size_t max, pw_buffer *data, pw_request *requests,
                          size_t *count, pw_error *error);

/*
 * As pw_server_recv, but of a request that is longer than a slot it takes the first part only:
 * `request` says whether it has more, for pw_server_next_part.
 */
pw_status pw_server_claim(pw_server *server, pw_deadline deadline, pw_buffer *data,
                          pw_request *request, pw_error *error);

/*
 * Takes the next part of the request that `request` was filled in for, and fills it in again. Its
 * bytes replace what `data` holds.
 *
 * Fails with PW_TIMED_OUT and PW_INTERRUPTED: call again, for the same part. PW_CLOSED if there is
 * no other part, or if the client has cancelled the call or has died. PW_STALE as pw_server_reply.
 */
pw_status pw_server_next_part(pw_server *server, pw_deadline deadline, pw_buffer *data,
                              pw_request *request, pw_error *error);

/*
 * Answers a request. `wanted`, which may be NULL, says whether the client still waited: false if
 * it has cancelled or forgotten the call, or if its death was noticed.
 *
 * Does not wait for a reply that fits into a slot. A longer one goes in parts, each as soon as the
 * client has taken the one before, for which it has part_timeout_ns, whatever signals come.
 *
 * Fails with PW_TOO_LONG if the reply is longer than max_message: then the request is still to be
 * answered. It is over after any other failure: PW_STALE if the ticket is none that this server
 * has to answer; PW_TIMED_OUT if the client has not taken a part in time; PW_CORRUPT; PW_OS.
 */
pw_status pw_server_reply(pw_server *server, uint64_t ticket, const void *data, size_t len,
                          uint32_t flags, bool *wanted, pw_error *error);

/*
 * As pw_server_reply, but waits for the client until the deadline.
 *
 * Fails with PW_TIMED_OUT and PW_INTERRUPTED: nothing of it was given, and the request is still to
 * be answered. Of a reply that is longer than a slot, something may have been given; then the
 * request is over.
 */
pw_status pw_server_reply_until(pw_server *server, uint64_t ticket, const void *data, size_t len,
                                uint32_t flags, pw_deadline deadline, bool *wanted,
                                pw_error *error);

/*
 * Gives the client a part of the reply, which it gets as soon as it asks for it; then come other
 * parts, or pw_server_reply. `wanted` is false if nobody waits for it any more: the client has
 * cancelled or forgotten the call, or its death was noticed; pw_server_fail ends the request then.
 * A client that does not ask for parts gets all of them as one reply.
 *
 * Waits until the client has taken the part before, or until the deadline.
 *
 * Fails with PW_TIMED_OUT and PW_INTERRUPTED: nothing of it was given, and it can be given again.
 * Of a part that is longer than a slot, something may have been given; then the request is over.
 * PW_TOO_LONG if it is longer than max_message. PW_INVALID if the request has more parts itself:
 * they come first. PW_STALE, PW_CORRUPT and PW_OS as pw_server_reply.
 */
pw_status pw_server_part(pw_server *server, uint64_t ticket, const void *data, size_t len,
                         uint32_t flags, pw_deadline deadline, bool *wanted, pw_error *error);

/*
 * Waits until the client has taken the part that pw_server_part gave last, or until the deadline.
 * `wanted` is as for pw_server_part. Before pw_server_fail, whose reason has no space beside a
 * part that was not taken.
 *
 * Fails with PW_TIMED_OUT and PW_INTERRUPTED: it has not taken it yet. PW_STALE, PW_CORRUPT and
 * PW_OS as pw_server_reply.
 */
pw_status pw_server_flush(pw_server *server, uint64_t ticket, pw_deadline deadline, bool *wanted,
                          pw_error *error);

/*
 * Gives a request up: its call fails with PW_FAILED, and its client gets the reason, bytes of
 * which as many arrive as a reply of one part has. There may be none. `wanted` says whether the
 * client still waited.
 *
 * Fails with PW_STALE if the ticket is none that this server has to answer.
 */
pw_status pw_server_fail(pw_server *server, uint64_t ticket, const void *reason, size_t len,
                         bool *wanted, pw_error *error);

/*
 * Whether a request is to be carried out: `wanted` is false once its client has cancelled, or its
 * death was noticed, as it is within 250 ms where this is asked again and again; pw_server_fail
 * ends the request then.
 *
 * Fails with PW_STALE if the ticket is none that this server has to answer.
 */
pw_status pw_server_is_wanted(pw_server *server, uint64_t ticket, bool *wanted, pw_error *error);

/*
 * How many servers have died with a request: what pw_request.redeliveries said.
 *
 * Fails with PW_STALE if the ticket is none that this server has to answer.
 */
pw_status pw_server_redeliveries(pw_server *server, uint64_t ticket, uint16_t *redeliveries,
                                 pw_error *error);

/*
 * In a forked child, makes a request its own that the parent had taken when it forked: for servers
 * that fork for each request. The parent must not answer it any more, and gets PW_STALE.
 *
 * Fails with PW_STALE if the parent has answered it or has died, if something of it went in parts
 * already, or if the ticket is none that it had to answer. What pw_reqrep_server fails with, since
 * the child attaches.
 */
pw_status pw_server_adopt(pw_server *server, uint64_t ticket, pw_error *error);

/*
 * Fails all requests that wait now; `count` says how many they were.
 *
 * Fails as pw_server_try_recv.
 */
pw_status pw_server_clear(pw_server *server, size_t *count, pw_error *error);

/*
 * Stops a server: from now on, who receives gets PW_CLOSED at once, and no more requests are
 * taken. Those that were taken can be answered. Any thread may call it; it does not wait. NULL is
 * allowed. To stop on a signal, block it in all threads, and have one wait for it with sigwait and
 * then call this.
 */
void pw_server_stop(pw_server *server);

/*
 * A descriptor for an event loop, readable while a request waits, and once the server was stopped.
 * It is the program's to close, and not to be read from. When it is readable, take requests with
 * pw_server_try_recv or pw_server_drain until there is none. A forked child asks for one of its
 * own.
 *
 * Fails with PW_OS if no descriptor is left, or no thread can be started.
 */
pw_status pw_server_doorbell(pw_server *server, int *fd, pw_error *error);

/* The segment that a server is attached to, lent until the server is freed; NULL for NULL. */
pw_segment *pw_server_segment(pw_server *server);

/* Leaves the segment. Requests that it has taken and not answered fail at their clients. */
void pw_server_free(pw_server *server);

/* -------------------------------------------------------------------------------------------------
 * Calls whose payloads are single numbers, in a segment that was made with `integers`. The
 * functions for payloads of bytes are PW_INCOMPATIBLE there, and these are elsewhere.
 */

/* As pw_client_call, with numbers. */
pw_status pw_client_call_int(pw_client *client, int64_t request, pw_deadline deadline,
                             int64_t *reply, pw_error *error);

/* As pw_client_send, with a number. */
pw_status pw_client_send_int(pw_client *client, int64_t request, pw_deadline deadline,
                             uint64_t *ticket, pw_error *error);

/* As pw_client_try_send, with a number. */
pw_status pw_client_try_send_int(pw_client *client, int64_t request, uint64_t *ticket,
                                 pw_error *error);

/* As pw_client_recv, with a number. */
pw_status pw_client_recv_int(pw_client *client, uint64_t ticket, pw_deadline deadline,
                             int64_t *reply, pw_error *error);

/* As pw_client_try_recv, with a number. */
pw_status pw_client_try_recv_int(pw_client *client, uint64_t ticket, int64_t *reply,
                                 pw_error *error);

/* As pw_client_recv_any, with a number. */
pw_status pw_client_recv_any_int(pw_client *client, pw_deadline deadline, uint64_t *ticket,
                                 int64_t *reply, pw_error *error);

/* As pw_server_recv, with a number. */
pw_status pw_server_recv_int(pw_server *server, pw_deadline deadline, int64_t *value,
                             pw_request *request, pw_error *error);

/* As pw_server_try_recv, with a number. */
pw_status pw_server_try_recv_int(pw_server *server, int64_t *value, pw_request *request,
                                 pw_error *error);

/* As pw_server_recv_many, with numbers, for which `values` has space. */
pw_status pw_server_recv_many_int(pw_server *server, size_t max, pw_deadline deadline,
                                  uint64_t linger_ns, int64_t *values, pw_request *requests,
                                  size_t *count, pw_error *error);

/* As pw_server_reply, with a number. */
pw_status pw_server_reply_int(pw_server *server, uint64_t ticket, int64_t reply, bool *wanted,
                              pw_error *error);

/* -------------------------------------------------------------------------------------------------
 * Eventfds that are rung by hand: for related processes with event loops, without a thread. Who
 * sends or replies, and wants the other side's loop to run, rings afterwards.
 */

/*
 * Holds an eventfd. Any threads may use one at the same time. It is freed with pw_eventfd_free,
 * which closes the eventfd.
 */
typedef struct pw_eventfd pw_eventfd;

/* Makes one that holds no eventfd yet. */
pw_status pw_eventfd_new(pw_eventfd **eventfd, pw_error *error);

/*
 * Returns the descriptor in `fd`, lent until the handle is freed or another one is set. If there
 * is none, this makes one, which does not block.
 *
 * Fails with PW_OS if no descriptor is left.
 */
pw_status pw_eventfd_create(pw_eventfd *eventfd, int *fd, pw_error *error);

/*
 * Puts a duplicate of an eventfd in, for instance of an inherited one. The one that was there is
 * closed.
 *
 * Fails with PW_INVALID if `fd` is not open; PW_OS if no descriptor is left.
 */
pw_status pw_eventfd_set(pw_eventfd *eventfd, int fd, pw_error *error);

/* The descriptor, lent as that of pw_eventfd_create; -1 if there is none. */
int pw_eventfd_fd(pw_eventfd *eventfd);

/* Makes the eventfd readable; false if there is none. */
bool pw_eventfd_ring(pw_eventfd *eventfd);

/*
 * Makes the eventfd unreadable and returns how often it was rung since the last time; 0 if it was
 * not, or if there is none. To be called before looking for requests or replies.
 */
uint64_t pw_eventfd_consume(pw_eventfd *eventfd);

/* Frees the handle, and closes the eventfd. */
void pw_eventfd_free(pw_eventfd *eventfd);

/* -------------------------------------------------------------------------------------------------
 * Room pipe: a byte pipe inside one process, without descriptors, and without system calls while
 * both sides run.
 *
 * One thread writes a stream (a document, an archive, a compressed file), another reads it, and
 * neither holds it whole. Bytes come out once and in order. There is one writer and one reader:
 *
 * - The writer finishes or is freed: the reader gets the rest, then 0 bytes, which is the end of
 *   the stream, as often as it asks.
 * - The writer closes with an error, or is freed where it must finish: the reader gets the rest,
 *   then PW_FAILED.
 * - The reader is freed: the writer gets PW_CLOSED, although there be space.
 * - The reader closes with an error: the writer gets PW_FAILED.
 *
 * An end that waits learns of this at once. A forked child has a copy of the memory, and nobody at
 * the other end.
 */

/* -------------------------------------------------------------------------------------------------
 * The two ends, and how they are made.
 */

/*
 * The reading end of a pipe. One thread at a time, whatever the other end's thread does. It is
 * freed with pw_pipe_reader_free or pw_pipe_reader_close_with_error.
 */
typedef struct pw_pipe_reader pw_pipe_reader;

/*
 * The writing end of a pipe. One thread at a time, whatever the other end's thread does. It is
 * freed with pw_pipe_writer_finish, pw_pipe_writer_free or pw_pipe_writer_close_with_error.
 */
typedef struct pw_pipe_writer pw_pipe_writer;

/* A capacity in bytes that suits most: what a pipe of the kernel has. */
#define PW_PIPE_CAPACITY 65536

/*
 * Makes a pipe that holds up to `capacity` bytes, rounded up to a power of two, and takes the
 * memory for them.
 *
 * Fails with PW_INVALID if the capacity is 0 or more than half of the address space; PW_OS with
 * ENOMEM if there is no such memory.
 */
pw_status pw_pipe_new(size_t capacity, pw_pipe_reader **reader, pw_pipe_writer **writer,
                      pw_error *error);

/* -------------------------------------------------------------------------------------------------
 * The reading end: takes bytes out, or lends them where they lie.
 */

/*
 * Waits for the first byte and takes what is there, as much as `space` bytes at `into` hold. `len`
 * says how many; 0 is the end of the stream.
 *
 * Fails with PW_TIMED_OUT and PW_INTERRUPTED: nothing was taken, call again. PW_FAILED if the
 * writer gave up, and everything before that has been taken; pw_pipe_reader_failure says why.
 */
pw_status pw_pipe_reader_recv(pw_pipe_reader *reader, void *into, size_t space,
                              pw_deadline deadline, size_t *len, pw_error *error);

/*
 * Takes what is there now; PW_WOULD_BLOCK if nothing is. It does not wait. Otherwise it is as
 * pw_pipe_reader_recv.
 */
pw_status pw_pipe_reader_try_recv(pw_pipe_reader *reader, void *into, size_t space, size_t *len,
                                  pw_error *error);

/*
 * Takes until the `space` bytes at `into` are full. `len` says how many there are: fewer only at
 * the end of the stream.
 *
 * Fails as pw_pipe_reader_recv. What was taken before lies at `into`, and pw_error.done says how
 * much that is: go on behind it.
 */
pw_status pw_pipe_reader_recv_full(pw_pipe_reader *reader, void *into, size_t space,
                                   pw_deadline deadline, size_t *len, pw_error *error);

/*
 * Takes up to and with the first byte that equals `delimiter`, or until the `space` bytes at
 * `into` are full. `len` says how many there are. Without that byte at their end, either `into` is
 * full or the stream has ended.
 *
 * Fails as pw_pipe_reader_recv_full.
 */
pw_status pw_pipe_reader_recv_until(pw_pipe_reader *reader, uint8_t delimiter, void *into,
                                    size_t space, pw_deadline deadline, size_t *len,
                                    pw_error *error);

/*
 * Waits until at least `min` bytes are there and lends them where they lie, in `pieces[0]` and
 * `pieces[1]`: the second is empty unless they reach round the end of the memory. There are fewer
 * only at the end of the stream. With `min` 0 it does not wait, and lends what is there.
 *
 * They are lent until the next call on this end. Meanwhile the writer may add to them, but not
 * change them.
 *
 * Fails with PW_TOO_LONG if `min` is more than the capacity; otherwise as pw_pipe_reader_recv.
 */
pw_status pw_pipe_reader_peek(pw_pipe_reader *reader, size_t min, pw_deadline deadline,
                              pw_bytes *pieces, pw_error *error);

/*
 * Is done with the first `len` bytes of what pw_pipe_reader_peek lent.
 *
 * Fails with PW_INVALID if it lent fewer.
 */
pw_status pw_pipe_reader_consume(pw_pipe_reader *reader, size_t len, pw_error *error);

/*
 * Copies `len` bytes to a descriptor, or as many as the stream has; UINT64_MAX is everything.
 * `copied` says how many. Whether the descriptor blocks does not matter.
 *
 * Fails as pw_pipe_reader_recv; with PW_CLOSED if nobody reads from the descriptor any more;
 * PW_OS. pw_error.done bytes have arrived, and no other has left the pipe: the same call may be
 * made again.
 */
pw_status pw_pipe_reader_copy_to_fd(pw_pipe_reader *reader, int fd, uint64_t len,
                                    pw_deadline deadline, uint64_t *copied, pw_error *error);

/* Whether the writer has finished or was freed; false for NULL. There may be bytes left. */
bool pw_pipe_reader_is_closed(pw_pipe_reader *reader);

/*
 * Writes why the writer gave up into `text`, which has space for `size` bytes with the NUL at the
 * end, and cuts it off there. Returns how long that is, without the NUL, as snprintf does; 0 if
 * the writer did not give up. There may be bytes left.
 */
size_t pw_pipe_reader_failure(pw_pipe_reader *reader, char *text, size_t size);

/* Bytes that can be taken now; 0 for NULL. The writer may add to them at any time. */
size_t pw_pipe_reader_len(pw_pipe_reader *reader);

/* Bytes that the pipe holds at most; 0 for NULL. */
size_t pw_pipe_reader_capacity(pw_pipe_reader *reader);

/*
 * Sets for how long this end's thread spins before it sleeps, while waits of late have ended
 * within that time: 20 microseconds by default, up to 1 ms, 0 for never. NULL is allowed.
 */
void pw_pipe_reader_set_spin(pw_pipe_reader *reader, uint64_t ns);

/*
 * Frees this end with a reason, a string, which the writer gets by pw_pipe_writer_failure; its
 * calls fail with PW_FAILED. NULL is no particular reason. NULL as `reader` is allowed.
 */
void pw_pipe_reader_close_with_error(pw_pipe_reader *reader, const char *reason);

/* Frees this end: what was not read is gone, and the writer's calls fail with PW_CLOSED. */
void pw_pipe_reader_free(pw_pipe_reader *reader);

/* -------------------------------------------------------------------------------------------------
 * The writing end: puts bytes in, or lends the space for them.
 */

/*
 * Waits for space for the first byte and puts in as many as there is space for. `sent` says how
 * many.
 *
 * Fails with PW_TIMED_OUT and PW_INTERRUPTED: nothing was put in, call again. PW_CLOSED if nobody
 * will read it; PW_FAILED if the reader gave up, and pw_pipe_writer_failure says why.
 */
pw_status pw_pipe_writer_send(pw_pipe_writer *writer, const void *data, size_t len,
                              pw_deadline deadline, size_t *sent, pw_error *error);

/*
 * Puts in what there is space for now; PW_WOULD_BLOCK if there is none. It does not wait.
 * Otherwise it is as pw_pipe_writer_send.
 */
pw_status pw_pipe_writer_try_send(pw_pipe_writer *writer, const void *data, size_t len,
                                  size_t *sent, pw_error *error);

/*
 * Puts in all `len` bytes.
 *
 * Fails as pw_pipe_writer_send. pw_error.done says how many were put in before: go on behind them.
 */
pw_status pw_pipe_writer_send_all(pw_pipe_writer *writer, const void *data, size_t len,
                                  pw_deadline deadline, pw_error *error);

/*
 * Waits until there is space for at least `min` bytes and lends it, in `pieces[0]` and
 * `pieces[1]`: the second is empty unless the space reaches round the end of the memory. With
 * `min` 0 it does not wait, and lends the space there is.
 *
 * It is lent until the next call on this end, and holds bytes of long ago. Nobody reads them
 * before pw_pipe_writer_commit.
 *
 * Fails with PW_TOO_LONG if `min` is more than the capacity; otherwise as pw_pipe_writer_send.
 */
pw_status pw_pipe_writer_reserve(pw_pipe_writer *writer, size_t min, pw_deadline deadline,
                                 pw_space *pieces, pw_error *error);

/*
 * Puts in the first `len` bytes of the space that pw_pipe_writer_reserve lent.
 *
 * Fails with PW_INVALID if it lent less.
 */
pw_status pw_pipe_writer_commit(pw_pipe_writer *writer, size_t len, pw_error *error);

/*
 * Copies `len` bytes from a descriptor, or as many as it has; UINT64_MAX is everything. `copied`
 * says how many. Whether the descriptor blocks does not matter. That the reader is gone is noticed
 * when there is something for it, not before.
 *
 * Fails as pw_pipe_writer_send; with PW_OS. pw_error.done bytes are in the pipe, and no other has
 * left the descriptor: the same call may be made again.
 */
pw_status pw_pipe_writer_copy_from_fd(pw_pipe_writer *writer, int fd, uint64_t len,
                                      pw_deadline deadline, uint64_t *copied, pw_error *error);

/* Whether the reader was freed; false for NULL. */
bool pw_pipe_writer_is_closed(pw_pipe_writer *writer);

/*
 * Writes why the reader gave up into `text`, as pw_pipe_reader_failure does; returns 0 if it did
 * not.
 */
size_t pw_pipe_writer_failure(pw_pipe_writer *writer, char *text, size_t size);

/* Bytes that wait to be read now; 0 for NULL. The reader may take some at any time. */
size_t pw_pipe_writer_len(pw_pipe_writer *writer);

/* Bytes that the pipe holds at most; 0 for NULL. */
size_t pw_pipe_writer_capacity(pw_pipe_writer *writer);

/* As pw_pipe_reader_set_spin. */
void pw_pipe_writer_set_spin(pw_pipe_writer *writer, uint64_t ns);

/*
 * From now on, pw_pipe_writer_free is a failure: unless pw_pipe_writer_finish has ended the
 * stream, its reader gets PW_FAILED behind the last byte. For a producer that may leave early and
 * free everything on its way: half a document then never looks like a whole one. NULL is allowed.
 */
void pw_pipe_writer_must_finish(pw_pipe_writer *writer);

/*
 * Ends the stream, and frees this end in any case: the reader gets what is in the pipe and then
 * the end. Whether it takes the rest is not waited for.
 *
 * Fails with PW_CLOSED or PW_FAILED if the reader is gone already, and so has not got all of it.
 */
pw_status pw_pipe_writer_finish(pw_pipe_writer *writer, pw_error *error);

/*
 * Frees this end with a reason, a string: the reader gets what is in the pipe and then PW_FAILED,
 * and the reason by pw_pipe_reader_failure. NULL is no particular reason. NULL as `writer` is
 * allowed.
 */
void pw_pipe_writer_close_with_error(pw_pipe_writer *writer, const char *reason);

/*
 * Frees this end: the reader gets what is in the pipe and then the end, unless this end must
 * finish.
 */
void pw_pipe_writer_free(pw_pipe_writer *writer);

/* -------------------------------------------------------------------------------------------------
 * Room fd: raw descriptors, and what one system call leaves half done.
 *
 * What libc does in one call is libc's. Here a call does all of it, until a deadline. Descriptors
 * may block or not, and share an open file with strangers: their flags are never changed, and a
 * deadline holds either way. Functions that never wait take none.
 *
 * What fails half-way says how far it got, in pw_error.done. PW_TIMED_OUT and PW_INTERRUPTED end a
 * wait, and the rest can be done by another call. PW_CLOSED is a pipe or socket that nobody reads,
 * without SIGPIPE; PW_INVALID, with EBADF, a number that is no open descriptor; PW_OS anything
 * else that the kernel refuses.
 */

/* -------------------------------------------------------------------------------------------------
 * Accepting many connections at once, and what to do when descriptors have run out.
 *
 * Linux looks for a free descriptor before it looks for a connection. So nothing is lost when
 * there is none, but the listener stays readable, and an event loop that just tries again spins.
 * Either it stops watching the listener until a descriptor is closed, or it keeps a pw_reserve and
 * turns the waiting away.
 */

/* Why accepting stopped: one of PW_STOPPED_WOULD_BLOCK to PW_STOPPED_FAILED. */
typedef uint32_t pw_stopped;

/* Nobody else is waiting. */
#define PW_STOPPED_WOULD_BLOCK 1
/* As many as were asked for have been taken; there may be more. */
#define PW_STOPPED_LIMIT 2
/*
 * No descriptor is left in this process or on this machine. Whoever waits goes on waiting: close
 * something, or call pw_reserve_shed.
 */
#define PW_STOPPED_NO_DESCRIPTORS 3
/* Anything else, after some were taken: the next call fails with it. */
#define PW_STOPPED_FAILED 4

/* An accepted connection. */
typedef struct pw_connection {
    /* Its descriptor, which is the program's; it does not block. */
    int fd;
    /* How long the address is; 0 where the kernel does not say who has connected. */
    socklen_t peer_len;
    /* Who has connected; zeros behind the end of the address. */
    struct sockaddr_storage peer;
} pw_connection;

/*
 * Accepts the connections that are there, up to `max`, into the array `connections`. `count`,
 * which must not be NULL, says how many they are, and `stopped` why there are not more. It does
 * not wait.
 *
 * A connection that its peer has given up meanwhile, or that a firewall forbids, counts as one of
 * `max` and is not among them. The listener should not block: one that does is polled first, and
 * if another process is quicker, the call waits for the next connection.
 *
 * Fails only if none was accepted, and for another reason than PW_STOPPED_WOULD_BLOCK, _LIMIT and
 * _NO_DESCRIPTORS, which are no failures.
 */
pw_status pw_fd_accept_many(int listener, pw_connection *connections, size_t max, size_t *count,
                            pw_stopped *stopped, pw_error *error);

/*
 * A descriptor that is given up when none is left, so that connections can be turned away instead
 * of left to wait. One thread at a time. It is freed with pw_reserve_free.
 */
typedef struct pw_reserve pw_reserve;

/*
 * Takes a descriptor to hold.
 *
 * Fails with PW_OS if none is left.
 */
pw_status pw_reserve_new(pw_reserve **reserve, pw_error *error);

/*
 * Whether there is a descriptor to give up; false for NULL. If not, the next pw_reserve_shed tries
 * to take one again.
 */
bool pw_reserve_is_held(pw_reserve *reserve);

/*
 * Accepts up to `max` connections and closes each at once, so that their peers learn that nobody
 * will serve them. `turned_away` says how many they were, and `stopped` why not more. It does not
 * wait. The descriptor is given up meanwhile; if another thread takes it first, the reserve is not
 * held any more.
 *
 * Fails as pw_fd_accept_many.
 */
pw_status pw_reserve_shed(pw_reserve *reserve, int listener, size_t max, size_t *turned_away,
                          pw_stopped *stopped, pw_error *error);

/* Frees the reserve, and closes its descriptor. */
void pw_reserve_free(pw_reserve *reserve);

/* -------------------------------------------------------------------------------------------------
 * Copying between any two descriptors, inside the kernel where it can.
 */

/*
 * Copies `len` bytes, or as many as there are; UINT64_MAX is everything. `copied` says how many.
 *
 * Both positions move along. Either side may be a file, a pipe, a stream socket, a terminal or a
 * device, and the best that the kernel does between them is found by itself. The deadline is
 * looked at in every wait, and after every 4 MiB that needed none.
 *
 * pw_error.done bytes have arrived when it fails, and no other has left `from`: the same call may
 * be made again. (Not so if `from` is a terminal, a device or a socket with SO_PEEK_OFF: up to
 * 4096 bytes are lost there when writing fails.) PW_UNSUPPORTED if a side is a datagram socket;
 * PW_INVALID if a file or pipe is both sides. Nobody else may read from `from` meanwhile.
 */
pw_status pw_fd_copy_all(int from, int to, uint64_t len, pw_deadline deadline, uint64_t *copied,
                         pw_error *error);

/*
 * Sends `len` bytes of the file `from`, beginning at `offset`, or as many as there are. `copied`
 * says how many. The position of `from` stays where it is, so that many can send from one file.
 *
 * Fails as pw_fd_copy_all; with PW_INVALID if `from` has no positions.
 */
pw_status pw_fd_sendfile_all(int to, int from, uint64_t offset, uint64_t len, pw_deadline deadline,
                             uint64_t *copied, pw_error *error);

/*
 * Moves `len` bytes, or as many as there are, through splice(2) alone. `copied` says how many. One
 * side must be a pipe.
 *
 * Fails as pw_fd_copy_all; with PW_INVALID if neither side is a pipe, or where the kernel cannot
 * splice, for instance into a file that is open for appending.
 */
pw_status pw_fd_splice_all(int from, int to, uint64_t len, pw_deadline deadline, uint64_t *copied,
                           pw_error *error);

/* -------------------------------------------------------------------------------------------------
 * Reading and writing all of it: records, whole files, at a position.
 */

/*
 * Reads until the `space` bytes at `into` are full or the input ends. `len` says how many there
 * are: fewer than `space` is the end. This is how records of a fixed size are read, one a call,
 * the last of them perhaps short, and then 0.
 *
 * When it fails, pw_error.done bytes were read to `into`: go on behind them.
 */
pw_status pw_fd_read_full(int fd, void *into, size_t space, pw_deadline deadline, size_t *len,
                          pw_error *error);

/*
 * Writes all `len` bytes.
 *
 * When it fails, the first pw_error.done bytes were written, and none of the others: go on behind
 * them.
 */
pw_status pw_fd_write_all(int fd, const void *data, size_t len, pw_deadline deadline,
                          pw_error *error);

/*
 * Appends everything to what `data` holds, from the current position to the end of file. `len`
 * says how many bytes that was. The buffer never takes more than about twice what it holds.
 *
 * Fails with PW_TOO_LONG if there are more than `max_bytes`; PW_OS with ENOMEM if there is no
 * memory. What was read before is in the buffer, and pw_error.done says how much it is.
 */
pw_status pw_fd_slurp(int fd, size_t max_bytes, pw_deadline deadline, pw_buffer *data, size_t *len,
                      pw_error *error);

/*
 * As pw_fd_read_full, from `offset` on. The descriptor's own position stays.
 *
 * Fails with PW_INVALID for a pipe or socket, which has no positions.
 */
pw_status pw_fd_pread_full(int fd, void *into, size_t space, uint64_t offset, size_t *len,
                           pw_error *error);

/*
 * As pw_fd_write_all, from `offset` on. The descriptor's own position stays. Linux appends,
 * whatever `offset` is, if the file was opened for appending.
 *
 * Fails with PW_INVALID for a pipe or socket, which has no positions.
 */
pw_status pw_fd_pwrite_all(int fd, const void *data, size_t len, uint64_t offset, pw_error *error);

/* -------------------------------------------------------------------------------------------------
 * Datagrams by the batch: many in one system call, whether the socket blocks or not.
 */

/* A datagram that has come, lent until the inbox receives again or is freed; or one to be sent. */
typedef struct pw_datagram {
    /* The first byte; may be NULL if there are none. */
    const void *data;
    /* How many. */
    size_t len;
    /*
     * Who has sent it, or who is to get it. NULL where the kernel does not say, or for the one
     * that the socket is connected to.
     */
    const struct sockaddr *address;
    /* How long the address is. */
    socklen_t address_len;
    /* It was longer than its space, and its end is lost. Means nothing when it is sent. */
    bool is_cut;
} pw_datagram;

/*
 * Space for datagrams, to be received into again and again. One thread at a time. It is freed with
 * pw_inbox_free.
 */
typedef struct pw_inbox pw_inbox;

/*
 * Makes space for `max` datagrams of up to `max_bytes` bytes each; more than 64 count as 64, which
 * one system call takes. All memory is taken at once.
 *
 * Fails with PW_INVALID if one of them is 0; PW_OS with ENOMEM if there is not so much memory.
 */
pw_status pw_inbox_new(size_t max, size_t max_bytes, pw_inbox **inbox, pw_error *error);

/*
 * Forgets what the inbox holds, waits for a datagram, and takes all that are there, as many as
 * fit. `count` says how many. Descriptors that somebody sends along are closed.
 *
 * Fails with PW_TIMED_OUT; PW_INTERRUPTED; PW_OS.
 */
pw_status pw_inbox_recv(pw_inbox *inbox, int socket, pw_deadline deadline, size_t *count,
                        pw_error *error);

/*
 * Lends one of the datagrams that the last pw_inbox_recv has taken: `i` counts from 0, in the
 * order in which they came.
 *
 * Fails with PW_INVALID if there are not so many.
 */
pw_status pw_inbox_get(pw_inbox *inbox, size_t i, pw_datagram *datagram, pw_error *error);

/* Frees the inbox, and what it has lent. */
void pw_inbox_free(pw_inbox *inbox);

/*
 * Sends each of `count` datagrams, and waits for space until the deadline.
 *
 * The first pw_error.done have been sent when it fails, and the next one is what it failed at.
 * PW_UNSUPPORTED for a stream socket; PW_INVALID for an address that is too short or too long for
 * its family.
 */
pw_status pw_fd_send_many(int socket, const pw_datagram *datagrams, size_t count,
                          pw_deadline deadline, pw_error *error);

/* -------------------------------------------------------------------------------------------------
 * Temporary names in a folder.
 */

/*
 * Creates a file under a new name: every X at the end of `path`, six of them at least, is replaced
 * by a random letter or digit. A relative path starts from the folder that is open as `folder`;
 * AT_FDCWD is the current one. `fd` is open for reading and writing; the file's mode is 0600.
 *
 * Fails with PW_INVALID if `path` does not end with six X; PW_OS. `path` is as it was then.
 */
pw_status pw_fd_mkstemp(int folder, char *path, int *fd, pw_error *error);

/*
 * Replaces the X at the end of `path` as pw_fd_mkstemp does, so that nothing has that name.
 * Nothing is created: somebody else may take the name meanwhile.
 *
 * Fails as pw_fd_mkstemp.
 */
pw_status pw_fd_mktemp(int folder, char *path, pw_error *error);

/* -------------------------------------------------------------------------------------------------
 * Many descriptors in one call: waiting for some, closing a range of them.
 */

/*
 * As poll(2), until a deadline: waits until one of `count` descriptors is ready for what is asked
 * of it. `ready` says how many are, 0 once the deadline has passed. None at all make it a sleep.
 *
 * Fails with PW_INTERRUPTED; PW_OS. A descriptor that is not open is ready, with POLLNVAL; one
 * with a negative number is left out.
 */
pw_status pw_fd_poll(struct pollfd *fds, size_t count, pw_deadline deadline, size_t *ready,
                     pw_error *error);

/*
 * Closes every open descriptor from `first` to `last`; UINT32_MAX is the last there can be. None
 * of them may be one that a handle of this library holds or was lent.
 *
 * Fails with PW_INVALID if `first` is larger than `last`; PW_UNSUPPORTED where the kernel or a
 * sandbox does not know the call.
 */
pw_status pw_fd_close_range(uint32_t first, uint32_t last, pw_error *error);

/*
 * Has every open descriptor from `first` to `last` closed when another program is executed.
 *
 * Fails as pw_fd_close_range. Linux 5.11 was the first to know how.
 */
pw_status pw_fd_close_range_on_exec(uint32_t first, uint32_t last, pw_error *error);

#ifdef __cplusplus
}
#endif

#endif
