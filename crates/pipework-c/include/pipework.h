/*
 * pipework: whole messages, calls and bytes between the processes and threads of one machine.
 *
 * ```c
 * #include <pipework.h>
 * #include <stdio.h>
 * #include <sys/wait.h>
 * #include <unistd.h>
 *
 * static int fail(const pwk_error *error) {
 *     char text[256];
 *     pwk_error_text(error, text, sizeof text);
 *     return fprintf(stderr, "%s\n", text), 1;
 * }
 *
 * static int serve(pwk_segment *segment) {
 *     pwk_error error;
 *     pwk_server *server = NULL;
 *     pwk_buffer data = PWK_BUFFER; // grown by the library, used again and again
 *     pwk_request request;
 *     pwk_status status = pwk_server_new(segment, NULL, &server, &error);
 *     while (status == PWK_OK || status == PWK_INTERRUPTED) { // after a signal: the same call again
 *         status = pwk_server_recv(server, pwk_in_ms(500), &data, &request, &error);
 *         if (status == PWK_OK) {
 *             status = pwk_server_reply(server, request.ticket, data.data, data.len, &error);
 *         }
 *     }
 *     pwk_buffer_free(&data);
 *     pwk_server_free(server);
 *     return status == PWK_TIMED_OUT ? 0 : fail(&error);
 * }
 *
 * int main(void) {
 *     pwk_error error;
 *     pwk_segment *segment = NULL;
 *     pwk_client *client = NULL;
 *     pwk_buffer reply = PWK_BUFFER;
 *     pwk_segment_options options;
 *     pwk_segment_options_init(&options, sizeof options);
 *     options.slots = 8;
 *     if (pwk_segment_anonymous(&options, &segment, &error) != PWK_OK) return fail(&error);
 *     if (fork() == 0) _exit(serve(segment));
 *     if (pwk_client_new(segment, NULL, &client, &error) != PWK_OK) return fail(&error);
 *     // PWK_PEER_DIED within 250 ms, had the server been killed with the request.
 *     if (pwk_client_call(client, "hello", 5, pwk_in_ms(5000), &reply, &error) != PWK_OK) {
 *         return fail(&error);
 *     }
 *     printf("%.*s\n", (int)reply.len, (const char *)reply.data);
 *     pwk_buffer_free(&reply);
 *     pwk_client_free(client);
 *     pwk_segment_free(segment);
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
 * 1. Names. A function on a handle is pwk_TYPE_VERB, and so is one that makes it. `_pair` makes
 *    both ends of a pipe. A `try_` function never waits, and returns PWK_WOULD_BLOCK where there
 *    is nothing now. A `_message` function is the full form of the one without: it has the 32 bits
 *    of flags that go with a payload, and results that few programs ask for. A `_blobs`
 *    function takes and gives blobs as well.
 * 2. Results. A pwk_status is PWK_OK, which is 0, or says why the call failed. A program that
 *    wants to know more passes a pwk_error of its own: it is filled in when a call fails (but
 *    not by the PWK_WOULD_BLOCK of a `try_` function) and untouched otherwise. Results go where
 *    a pointer says, and are written when the call succeeds, unless the function says otherwise.
 *    If a result is not wanted, its pointer may be NULL; a new handle is always wanted. errno is
 *    no part of this, and is left as it was.
 * 3. Deadlines are absolute times: see pwk_deadline.
 * 4. Ownership. A handle is given back to its `_free`, which takes NULL, too. Nothing is freed
 *    with free(). Data in a pwk_buffer is the program's; a pwk_bytes, a pwk_space or the data of
 *    a pwk_item is lent until the next call on the same handle; the bytes of a blob until its handle
 *    is freed. Arguments are copied, strings too.
 * 5. Options are structs with `size` first, which `_options_init` fills in with the defaults;
 *    NULL means the defaults. Later versions add fields at the end. A program that was compiled
 *    for a later version gets PWK_INVALID if it sets a field that this one does not know.
 *    Structs of facts that are filled in come with their size for the same reason.
 * 6. Threads. Each type says which threads may use it. While one is freed, no thread may use it.
 * 7. Signals. A handler that ran ends a wait with PWK_INTERRUPTED, and nothing is lost: call
 *    again. (Only pwk_client_call has cancelled its call by then, and pwk_atomic_writer_close has
 *    closed.) A program may set a function that decides instead: pwk_set_interrupt_hook. No function
 *    but pwk_version may be called in a handler.
 * 8. Processes. A child that was forked may use what it inherits, as each module says. SIGPIPE
 *    never comes from here. Descriptors that are passed in are lent for the call, unless a
 *    pwk_fd_how says otherwise; those that come out are the program's, and closed when another
 *    program is executed.
 * 9. NULL where it is not allowed, more bytes than PTRDIFF_MAX, or a struct of size 0 is
 *    PWK_INVALID, and pwk_error.op names the function. NULL with length 0 is an empty payload.
 * 10. A program may ask whether pwk_abi() is PWK_ABI: if not, it was compiled for another library.
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
 * The status that a function returns, and the error that it fills in.
 */

/* How a call ended: PWK_OK, or why it failed. The numbers never change. */
typedef int32_t pwk_status;

/* It is done. */
#define PWK_OK 0
/* It cannot be done at once, and waiting was not asked for. */
#define PWK_WOULD_BLOCK 1
/* The deadline passed first. Work that the call had not done by then is not done. */
#define PWK_TIMED_OUT 2
/*
 * A signal handler ran while the call waited. Nothing is lost; call again. (Only pwk_client_call,
 * under each of its names, has cancelled its call, which a server may have carried out.)
 */
#define PWK_INTERRUPTED 3
/* The other side is gone: no more bytes to read, or no reader. */
#define PWK_CLOSED 4
/* Larger than a limit that this end was given. */
#define PWK_TOO_LONG 5
/* The handle or the ticket belongs to a time that is over. */
#define PWK_STALE 6
/* The process that had the request has died. */
#define PWK_PEER_DIED 7
/* No server is there to take the request. */
#define PWK_NO_SERVER 8
/* A part of the message never came. */
#define PWK_TORN 9
/* Bytes that no correct peer writes. */
#define PWK_CORRUPT 10
/* Made by a build or a machine that this one cannot work with, or for another kind of call. */
#define PWK_INCOMPATIBLE 11
/* This kernel or this kind of descriptor cannot do it. */
#define PWK_UNSUPPORTED 12
/* The arguments have no meaning: NULL where it is not allowed, impossible sizes. */
#define PWK_INVALID 13
/* Any other refusal of the kernel; pwk_error.os says which. */
#define PWK_OS 14
/* The other side gave up: a server its request, or a pipe's other end its stream. */
#define PWK_FAILED 15
/* Messages are gone that a subscriber had not received; pwk_error.done says how many. */
#define PWK_LAGGED 16
/* A mistake of this library. Its text went to standard error. */
#define PWK_BUG 255

/*
 * Why a call failed. A program that wants to know passes a pointer to one of its own; it is filled
 * in when the call fails, and left as it is otherwise.
 */
typedef struct pwk_error {
    /* The status that the call returned. */
    pwk_status kind;
    /*
     * The kernel's number, as in errno; 0 if the kernel had no part in it. A negative number is
     * for pwk_error_text.
     */
    int32_t os;
    /*
     * How far the call had got, in bytes or items, where it does several; after PWK_LAGGED, how many
     * messages were missed.
     */
    uint64_t done;
    /* The operation that failed, for instance "reqrep recv". */
    char op[48];
} pwk_error;

/* -------------------------------------------------------------------------------------------------
 * Statuses and errors in words.
 */

/* The text for a status. Never NULL; not to be freed. */
const char *pwk_status_text(pwk_status status);

/*
 * The errno that says about the same, for programs that report errors in that way; 0 for PWK_OK
 * and for a number that is no status.
 */
int32_t pwk_status_errno(pwk_status status);

/*
 * Writes an error as one line into `text`, which has space for `size` bytes with the NUL at the
 * end, and cuts it off there. Returns how long the whole line is, without the NUL, as snprintf
 * does; 0 if `error` is NULL.
 */
size_t pwk_error_text(const pwk_error *error, char *text, size_t size);

/*
 * The process for which the call had waited, as numbered in its own pid namespace: after PWK_TIMED_OUT
 * of pwk_publisher_publish, that of the slowest subscriber that must see all. 0 if the error names
 * none, and for NULL.
 */
uint32_t pwk_error_process(const pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * Which library this is.
 */

/* The number of this interface. A program that was compiled with another one must not go on. */
#define PWK_ABI 1

/*
 * The number of the interface that the library has: PWK_ABI, or the program was compiled for
 * another one.
 */
uint32_t pwk_abi(void);

/* The version of the library, for people: "0.1.0". Not to be freed. */
const char *pwk_version(void);

/* -------------------------------------------------------------------------------------------------
 * How long to wait: an absolute time, so that a call can be made again with the same one.
 */

/*
 * A time of CLOCK_MONOTONIC in nanoseconds, after which a call gives up. It is absolute, so a call
 * that a signal interrupts is made again with the same one. A time in the past does not wait.
 */
typedef int64_t pwk_deadline;

/* Waits for as long as it takes. */
#define PWK_NEVER INT64_MAX

/* The time in `ms` milliseconds from now. A negative number is in the past. */
pwk_deadline pwk_in_ms(int64_t ms);

/*
 * The time in `ns` nanoseconds from now. A negative number is in the past; INT64_MAX is PWK_NEVER.
 */
pwk_deadline pwk_in_ns(int64_t ns);

/* Nanoseconds that are left until then: 0 if it has passed, INT64_MAX if it never does. */
int64_t pwk_left_ns(pwk_deadline deadline);

/* -------------------------------------------------------------------------------------------------
 * The interrupt hook: a function of the program that says whether waits go on.
 */

/*
 * Sets the interrupt hook of this process, once and for good: a function that each thread asks
 * while it waits in this library, when a signal handler has run, and every 250 ms. After a true the
 * wait goes on where it is. After a false the call ends with PWK_INTERRUPTED, also inside a message,
 * which is then given up and not delivered. Nothing else interrupts a call then. So a signal that
 * comes just before a call, or that another thread gets, is not slept through:
 *
 * ```text
 * static volatile sig_atomic_t is_stopped;
 * static void stop(int signal) { (void)signal; is_stopped = 1; }
 * static bool go_on(void) { return !is_stopped; }
 *
 * signal(SIGTERM, stop);
 * pwk_set_interrupt_hook(go_on, NULL);
 * ```
 *
 * The function is called in the thread that waits, with no lock of the library held. It may take
 * its time, and use other handles than the one whose call asks. It must return, and not by a jump.
 * Calls that need not wait do not ask, and neither do threads of the library. pwk_atomic_writer_free
 * asks as well, and after a false drops what is pending.
 *
 * Fails with PWK_INVALID if a function is set already.
 */
pwk_status pwk_set_interrupt_hook(bool (*go_on)(void), pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * Bytes that are lent, and memory that the library grows.
 */

/*
 * Bytes that are lent: the library's until the next call on the handle that they came from, or the
 * program's for the length of a call.
 */
typedef struct pwk_bytes {
    /* The first byte; may be NULL if `len` is 0. */
    const void *data;
    /* How many. */
    size_t len;
} pwk_bytes;

/* Memory that the library lends, to be written. */
typedef struct pwk_space {
    /* The first byte; may be NULL if `len` is 0. */
    void *data;
    /* How many bytes. */
    size_t len;
} pwk_space;

/*
 * Memory that the library grows as getline does, to be used again and again. A program sets it to
 * PWK_BUFFER before the first use, reads `data` and `len`, and gives it to pwk_buffer_free in the
 * end. One thread at a time.
 */
typedef struct pwk_buffer {
    /* The bytes of the buffer. They may move with every call that fills the buffer. */
    void *data;
    /* How many bytes. */
    size_t len;
    /* The allocated memory, in bytes. Only the library writes this. */
    size_t capacity;
} pwk_buffer;

/* An empty buffer, to initialise one with. */
#define PWK_BUFFER {NULL, 0, 0}

/*
 * Makes space for `capacity` bytes in all, so that a call which needs no more does not ask for
 * memory. The bytes in the buffer stay there.
 *
 * Fails with PWK_OS and ENOMEM if the memory does not suffice.
 */
pwk_status pwk_buffer_reserve(pwk_buffer *buffer, size_t capacity, pwk_error *error);

/* Gives the memory back. The buffer is empty then, and may be used again. NULL is allowed. */
void pwk_buffer_free(pwk_buffer *buffer);

/* -------------------------------------------------------------------------------------------------
 * The ways to pass a descriptor in.
 */

/*
 * How a function treats a descriptor that is passed in: one of PWK_FD_TAKE, PWK_FD_DUP and
 * PWK_FD_LEND.
 */
typedef uint32_t pwk_fd_how;

/* It is the library's from then on, which closes it; also where the call fails. */
#define PWK_FD_TAKE 1
/* It stays the program's; the library makes a duplicate for itself. */
#define PWK_FD_DUP 2
/* It stays the program's, which keeps it open for as long as the handle lives. */
#define PWK_FD_LEND 3

/* -------------------------------------------------------------------------------------------------
 * Defaults: the values for everything that a program does not set.
 */

/* Calls of a segment that can be in progress at the same time. */
#define PWK_DEFAULT_SLOTS 256
/* Bytes of a slot for a request. A longer request lies in a blob. */
#define PWK_DEFAULT_REQUEST_BYTES 4096
/* Bytes of a slot for a reply. A longer reply lies in a blob. */
#define PWK_DEFAULT_REPLY_BYTES 4096
/*
 * Members that can be attached to a channel at the same time: clients and servers, or publishers and
 * subscribers.
 */
#define PWK_DEFAULT_MEMBERS 256
/* Messages that the ring of a broadcast keeps. */
#define PWK_DEFAULT_MESSAGES 1024
/* Bytes of a cell of the ring. A longer message lies in a blob. */
#define PWK_DEFAULT_MESSAGE_BYTES 1024
/* Bytes of a publisher's messages that the ring keeps in blobs: 128 MiB. */
#define PWK_DEFAULT_KEEP_BYTES 134217728
/* Permissions of the file of a segment. */
#define PWK_DEFAULT_MODE 0600
/* Bytes of shared memory that a process keeps for its next blobs in a segment: 128 MiB. */
#define PWK_DEFAULT_BLOB_POOL 134217728
/* Bytes of the longest message, request or reply: 256 MiB. */
#define PWK_DEFAULT_MAX_MESSAGE 268435456
/* For how long a client may take for a part that the reply comes after. */
#define PWK_DEFAULT_PART_TIMEOUT_NS 10000000000
/* For how long a wait spins before it parks. */
#define PWK_DEFAULT_SPIN_NS 20000
/* Bytes that a reader of messages asks for at once. */
#define PWK_DEFAULT_READ_SIZE 65536
/* Bytes that may be pending in a writer of messages. */
#define PWK_DEFAULT_MAX_PENDING 1048576
/* For how long a reader of mixed mode waits for the rest of a part while nothing comes. */
#define PWK_DEFAULT_FRAME_TIMEOUT_NS 5000000000
/* The level of zstd. */
#define PWK_DEFAULT_ZSTD_LEVEL 3

/* -------------------------------------------------------------------------------------------------
 * Module atomic: whole messages of any size from many writers over one pipe, FIFO or Unix stream
 * socket.
 *
 * A pipe keeps a write of up to 4096 bytes in one piece, and tears anything larger. Here a message
 * is cut into parts of that size, each with the name of its writer, and the reader puts them
 * together: each message comes out whole, once, and in the order of its writer. A message that a
 * killed writer did not finish is reported: when the pipe ends, or max_unfinished is exceeded,
 * because the reader cannot know sooner that nothing more comes.
 *
 * In mixed mode the same pipe carries ordinary text, too: a process prints any text to its stdout,
 * and sends messages through it at the same time. Text comes out in the place where the kernel
 * received it, in pieces of up to 4096 bytes that stay together, and has no sender. Stdio buffers
 * its output to a pipe: a program whose lines are to stay whole, and in order with its messages,
 * sets line buffering, setvbuf(stdout, NULL, _IOLBF, 0), or calls fflush before it sends.
 *
 * A pipe ends when its last writer is closed. A process that forks its writers closes its own.
 */

/* -------------------------------------------------------------------------------------------------
 * The options of the ends of a pipe, and functions to check a descriptor before.
 */

/*
 * How an end is made. Both ends of a pipe must agree on `mixed`, `compress` and the dictionary;
 * the rest is each end's own affair.
 */
typedef struct pwk_atomic_options {
    /* sizeof(pwk_atomic_options). */
    size_t size;
    /*
     * Reader: bytes of the largest message, compressed or not, and of the longest line that is
     * given out in one piece; PWK_DEFAULT_MAX_MESSAGE by default.
     */
    size_t max_message;
    /*
     * Reader: bytes of all unfinished messages together. Past it, the one that waited longest is
     * given up and reported. 0, the default, is 8 times max_message, and at least 1 GiB.
     */
    size_t max_unfinished;
    /*
     * Reader: how many bytes one read asks for, from 1 to 16 MiB; PWK_DEFAULT_READ_SIZE by
     * default.
     */
    size_t read_size;
    /*
     * Writer: how many bytes may be pending before pwk_atomic_writer_try_send takes no more;
     * PWK_DEFAULT_MAX_PENDING by default.
     */
    size_t max_pending;
    /*
     * Mixed reader, not strict: for how long the rest of a part that has begun is waited for while
     * nothing comes, before it is text and its message is reported;
     * PWK_DEFAULT_FRAME_TIMEOUT_NS by default. 0 is right where all writers write into this very
     * pipe, UINT64_MAX waits for the end.
     */
    uint64_t frame_timeout_ns;
    /*
     * Reader: for how long it spins before it sleeps, up to 1 ms; PWK_DEFAULT_SPIN_NS by default.
     */
    uint64_t spin_ns;
    /*
     * Raw bytes that resemble the messages, for instance one of them; none by default. They are
     * copied.
     */
    pwk_bytes dictionary;
    /*
     * Writer: the level of zstd, from -131072 (fastest) to 22 (smallest); PWK_DEFAULT_ZSTD_LEVEL
     * by default.
     */
    int32_t level;
    /* Ordinary text may lie between the messages. */
    bool mixed;
    /* Each message and burst is compressed with zstd. */
    bool compress;
    /*
     * Reader: frames without a checksum are taken even if a dictionary is set, which may then be a
     * wrong one. Atomic::Pipe writes such frames.
     */
    bool accept_unchecked;
    /* Reader: items come with the zstd frame that held them. */
    bool keep_compressed;
    /*
     * Mixed reader: a control byte 0x0E that opens no part or burst is PWK_CORRUPT, and not text.
     */
    bool strict;
    /*
     * Mixed reader: bursts are looked for, which is the default. Without them, only messages lie
     * between text: for the output of programs that may print any bytes.
     */
    bool bursts;
    /*
     * Writer: if the descriptor is a terminal, a file or a device, messages are printed there as
     * lines. By default that is PWK_INVALID, because no reader decodes messages there.
     */
    bool or_print;
} pwk_atomic_options;

/* Fills in the defaults. `size` is sizeof(pwk_atomic_options). */
void pwk_atomic_options_init(pwk_atomic_options *options, size_t size);

/*
 * Makes a FIFO at `path` that only this user may open.
 *
 * Fails with PWK_OS, and EEXIST if something is there already.
 */
pwk_status pwk_atomic_create_fifo(const char *path, pwk_error *error);

/* A descriptor that is open for reading, for pwk_atomic_reader_from_fd. */
#define PWK_READER 1
/* One that is open for writing, for pwk_atomic_writer_from_fd. */
#define PWK_WRITER 2

/*
 * Finds out which end of a pipe a descriptor is: PWK_READER or PWK_WRITER.
 *
 * Fails with PWK_INVALID if it is not open, no pipe or FIFO, or open for both, as every socket is.
 */
pwk_status pwk_atomic_which_end(int fd, uint32_t *end, pwk_error *error);

/*
 * The largest capacity in bytes that an unprivileged user may give a pipe.
 *
 * Fails with PWK_OS where /proc is not there.
 */
pwk_status pwk_atomic_max_capacity(size_t *bytes, pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * The items that a reader takes out of a pipe.
 */

/* A line of ordinary text, in pwk_item.kind. */
#define PWK_ITEM_LINE 1
/* A burst: bytes that were sent in one write, without a sender's name. */
#define PWK_ITEM_BURST 2
/* A message, whole. */
#define PWK_ITEM_MESSAGE 3
/* The report of a message or burst that is lost. */
#define PWK_ITEM_TORN 4

/*
 * Names one writer. Writers that live at the same time have different ones, whatever their
 * processes and threads.
 */
typedef struct pwk_key {
    /* The sender's process, as numbered in its own pid namespace. */
    int32_t pid;
    /* A random number, drawn for each writer and again after a fork. */
    int32_t tid;
} pwk_key;

/* pwk_atomic_options.max_message, in pwk_item.limit. */
#define PWK_LIMIT_MAX_MESSAGE 1
/* pwk_atomic_options.max_unfinished. */
#define PWK_LIMIT_MAX_UNFINISHED 2
/* The memory that the system has left. */
#define PWK_LIMIT_MEMORY 3

/*
 * An item from a reader. Its data is lent until the next call on the reader,
 * pwk_atomic_reader_free included.
 */
typedef struct pwk_item {
    /* The kind of the item: PWK_ITEM_MESSAGE, and so on. */
    uint32_t kind;
    /* Message and report: in how many parts it came, or how many of them had come. */
    uint32_t parts;
    /* Message and report: its writer. Zeros if that is not known. */
    pwk_key writer;
    /*
     * The bytes of the message or burst, or a line with its "\n", "\r\n" or "\r", which the last
     * line before the end may lack, or a piece of a line that is longer than max_message. NULL in
     * a report.
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
     * Report: why it is lost. PWK_TORN: a part of it never came. PWK_TOO_LONG: it is over `limit`.
     * PWK_CORRUPT: it is not what was sent, or does not decompress. PWK_INCOMPATIBLE: it is
     * compressed, and the reader does not decompress. Otherwise PWK_OK.
     */
    pwk_status torn;
    /* Report that says PWK_TOO_LONG: which limit, as PWK_LIMIT_MAX_MESSAGE. Otherwise 0. */
    uint32_t limit;
} pwk_item;

/* -------------------------------------------------------------------------------------------------
 * The reading end.
 */

/*
 * The reading end of a pipe, FIFO or Unix stream socket. One thread at a time;
 * pwk_atomic_reader_clone makes another for another thread. Only one process can read from a pipe
 * in this way: a child that was forked may use the reader if the parent had nothing buffered, and
 * gets PWK_STALE otherwise. It is freed with pwk_atomic_reader_free.
 */
typedef struct pwk_atomic_reader pwk_atomic_reader;

/*
 * Opens the FIFO at `path` for reading, at once. The pipe ends when its last writer has left;
 * before the first has come, calls wait for it.
 *
 * Fails with PWK_INVALID if `path` is a symbolic link or no FIFO; PWK_OS.
 */
pwk_status pwk_atomic_reader_open_fifo(const char *path, const pwk_atomic_options *options,
                                       pwk_atomic_reader **reader, pwk_error *error);

/*
 * As pwk_atomic_reader_open_fifo, but the pipe never ends: when the last writer has left, what it
 * did not finish is reported, and calls wait for the next one. It needs /proc, and the right to
 * open the FIFO again later.
 *
 * Fails as pwk_atomic_reader_open_fifo.
 */
pwk_status pwk_atomic_reader_listen_fifo(const char *path, const pwk_atomic_options *options,
                                         pwk_atomic_reader **reader, pwk_error *error);

/*
 * Reads from a descriptor: a pipe, a FIFO, or a connected stream socket of the Unix family.
 *
 * Fails with PWK_INVALID if it is none of these, or not open for reading, which pwk_error_text
 * says; PWK_OS if no descriptor is left.
 */
pwk_status pwk_atomic_reader_from_fd(int fd, pwk_fd_how how, const pwk_atomic_options *options,
                                     pwk_atomic_reader **reader, pwk_error *error);

/* Closes this end; the pipe's reading end is closed with the last of its clones. */
void pwk_atomic_reader_free(pwk_atomic_reader *reader);

/*
 * Another reader of the same pipe, for another thread. Clones share one buffer: each item goes to
 * one of them.
 *
 * Fails with PWK_OS if no descriptor is left.
 */
pwk_status pwk_atomic_reader_clone(pwk_atomic_reader *reader, pwk_atomic_reader **clone,
                                   pwk_error *error);

/*
 * Waits for the next message.
 *
 * Fails with PWK_CLOSED if the pipe has ended, and all is given out. PWK_TORN, PWK_TOO_LONG,
 * PWK_CORRUPT: a message is lost; pwk_atomic_reader_torn says whose, and the next call goes on.
 * (Where it says nothing, the stream makes no sense, and stays so.) PWK_INCOMPATIBLE: the message
 * is compressed, and this reader does not decompress; or the messages are those of mixed mode, and
 * stay so. PWK_TIMED_OUT and PWK_INTERRUPTED: nothing is lost, call again. PWK_INVALID in mixed
 * mode, where pwk_atomic_reader_next_item gives out text, too. PWK_STALE in a child, if the parent
 * had read what it had not used. PWK_OS.
 */
pwk_status pwk_atomic_reader_recv(pwk_atomic_reader *reader, pwk_deadline deadline,
                                  pwk_item *message, pwk_error *error);

/*
 * The next message if it is there, else PWK_WOULD_BLOCK. It does not wait. Otherwise it is as
 * pwk_atomic_reader_recv.
 */
pwk_status pwk_atomic_reader_try_recv(pwk_atomic_reader *reader, pwk_item *message,
                                      pwk_error *error);

/*
 * Waits for the next line, burst, message or report of a lost message.
 *
 * Fails with PWK_CLOSED if the pipe has ended, and all items were returned. PWK_CORRUPT: a plain
 * stream that makes no sense; with `strict`, bytes that open like a part and are none.
 * PWK_INCOMPATIBLE: a mixed reader's stream begins with a message of plain mode; this is returned
 * once, and the next call gives the bytes as text. PWK_TIMED_OUT, PWK_INTERRUPTED, PWK_STALE and
 * PWK_OS as pwk_atomic_reader_recv.
 */
pwk_status pwk_atomic_reader_next_item(pwk_atomic_reader *reader, pwk_deadline deadline,
                                       pwk_item *item, pwk_error *error);

/*
 * The next item if it is there, else PWK_WOULD_BLOCK. It does not wait. Otherwise it is as
 * pwk_atomic_reader_next_item.
 */
pwk_status pwk_atomic_reader_try_next_item(pwk_atomic_reader *reader, pwk_item *item,
                                           pwk_error *error);

/*
 * Fills in the report of the loss for which pwk_atomic_reader_recv or pwk_atomic_reader_try_recv
 * failed last; false if the last call lost nothing.
 */
bool pwk_atomic_reader_torn(pwk_atomic_reader *reader, pwk_item *report);

/*
 * Puts the text of a line that has begun and not ended into `text`, as far as it has come; nothing
 * if no line has begun. It does not read: call it when pwk_atomic_reader_try_next_item has
 * nothing.
 */
pwk_status pwk_atomic_reader_peek(pwk_atomic_reader *reader, pwk_buffer *text, pwk_error *error);

/*
 * By when to call again although the descriptor is not readable; PWK_NEVER: not before it is. For
 * event loops, to be asked after a `try_` function had nothing: at that time a part that waits for
 * its rest becomes text, or more is in the pipe than one call looks at.
 */
pwk_deadline pwk_atomic_reader_next_timeout(pwk_atomic_reader *reader);

/*
 * Waits for bytes and reads them without looking at them, to make space for writers. `len` says
 * how many they are: up to the read size, and 0 at the end of the pipe.
 *
 * Fails with PWK_TOO_LONG once max_unfinished bytes lie there; PWK_TIMED_OUT; PWK_INTERRUPTED;
 * PWK_STALE; PWK_OS.
 */
pwk_status pwk_atomic_reader_read_ahead(pwk_atomic_reader *reader, pwk_deadline deadline,
                                        size_t *len, pwk_error *error);

/*
 * Whether the pipe has ended, and all is given out. It does not read: pwk_atomic_reader_wait_eof
 * does.
 */
bool pwk_atomic_reader_is_eof(pwk_atomic_reader *reader);

/*
 * Waits until it is known whether the pipe has ended, and all is given out; `is_eof` is false as
 * soon as something is there, even the beginning of a message. It reads, and gives nothing out.
 *
 * Fails with PWK_TIMED_OUT if neither has come. PWK_INTERRUPTED; PWK_CORRUPT and PWK_INCOMPATIBLE
 * as pwk_atomic_reader_next_item; PWK_STALE; PWK_OS.
 */
pwk_status pwk_atomic_reader_wait_eof(pwk_atomic_reader *reader, pwk_deadline deadline,
                                      bool *is_eof, pwk_error *error);

/*
 * Takes no more from the pipe, as if it had ended here. It does not wait.
 *
 * Fails with PWK_STALE.
 */
pwk_status pwk_atomic_reader_finish(pwk_atomic_reader *reader, pwk_error *error);

/* How many bytes were read and not given out; 0 for NULL. */
size_t pwk_atomic_reader_buffered(pwk_atomic_reader *reader);

/*
 * Whether nothing is held: no bytes, no line that has begun, no part of a message. After
 * pwk_atomic_reader_set_exact it is so between the messages of a single writer, and another reader
 * may read on there.
 */
bool pwk_atomic_reader_is_empty(pwk_atomic_reader *reader);

/*
 * Whether another reader reads from the same FIFO now, which both have opened by its path. Both get
 * pieces of the stream, and messages are lost to both.
 */
bool pwk_atomic_reader_has_other_reader(pwk_atomic_reader *reader);

/*
 * The descriptor, for an event loop, lent until the handle is freed; -1 for NULL. When it is
 * readable, call a `try_` function until that has nothing, and then
 * pwk_atomic_reader_next_timeout. A listener has another one after its first call in a forked
 * child. Between clones, an item may also wait in the buffer that they share.
 */
int pwk_atomic_reader_fd(pwk_atomic_reader *reader);

/* Bytes that one read asks for; 0 for NULL. */
size_t pwk_atomic_reader_read_size(pwk_atomic_reader *reader);

/* Sets how many bytes one read asks for: from 1 to 16 MiB. NULL is allowed, here and below. */
void pwk_atomic_reader_set_read_size(pwk_atomic_reader *reader, size_t bytes);

/*
 * Makes reads stop at the end of the given item, counted from here on, and then of each further
 * one, so that the bytes behind it stay in the pipe for another reader. 0: they read ahead, as at
 * first. Reports of lost messages do not count. For each 64 KiB it costs two system calls and a
 * copy.
 */
void pwk_atomic_reader_set_exact(pwk_atomic_reader *reader, uint64_t items);

/* Sets whether items come with the zstd frame that held them. */
void pwk_atomic_reader_set_keep_compressed(pwk_atomic_reader *reader, bool keep);

/* Whether text may lie between the messages. */
bool pwk_atomic_reader_is_mixed(pwk_atomic_reader *reader);

/*
 * Changes the mode for all that is not given out yet. Writers must do the same at the same place
 * of the stream.
 *
 * Fails with PWK_WOULD_BLOCK while a line is unfinished; PWK_STALE.
 */
pwk_status pwk_atomic_reader_set_mixed(pwk_atomic_reader *reader, bool mixed, pwk_error *error);

/*
 * Sets how messages are decompressed, for all that were not returned yet: as `compress`,
 * `dictionary` and `accept_unchecked` of the options say; the other fields are ignored. NULL: not
 * at all.
 *
 * Fails with PWK_INVALID if the level or the dictionary is none; PWK_STALE.
 */
pwk_status pwk_atomic_reader_set_zstd(pwk_atomic_reader *reader, const pwk_atomic_options *options,
                                      pwk_error *error);

/*
 * How many bytes the pipe holds before a writer waits.
 *
 * Fails with PWK_UNSUPPORTED for a socket, here and below; PWK_OS.
 */
pwk_status pwk_atomic_reader_capacity(pwk_atomic_reader *reader, size_t *bytes, pwk_error *error);

/*
 * Asks for a capacity; `now` says which one the kernel chose, at least as large.
 *
 * Fails with PWK_OS, with EPERM past the limit of an unprivileged user, with EBUSY below the number
 * of bytes in the pipe. The capacity stays as it was then.
 */
pwk_status pwk_atomic_reader_set_capacity(pwk_atomic_reader *reader, size_t bytes, size_t *now,
                                          pwk_error *error);

/* As pwk_atomic_reader_set_capacity, with pwk_atomic_max_capacity bytes at the most. */
pwk_status pwk_atomic_reader_set_capacity_or_max(pwk_atomic_reader *reader, size_t bytes,
                                                 size_t *now, pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * The writing end, and pipes with both ends.
 */

/*
 * The writing end of a pipe, FIFO or Unix stream socket. One thread at a time;
 * pwk_atomic_writer_clone makes another for another thread, and any number of processes can have
 * theirs. In a child that was forked it is a writer of its own, without the parent's pending data.
 * It is freed with pwk_atomic_writer_free, or with pwk_atomic_writer_close.
 * pending. It is freed with pwk_atomic_writer_free, or with pwk_atomic_writer_close.
 */
typedef struct pwk_atomic_writer pwk_atomic_writer;

/*
 * Makes a new pipe. A child that prints and sends into it gets pwk_atomic_writer_fd as its
 * stdout, by dup2, and makes a writer there: pwk_atomic_writer_from_fd(1, PWK_FD_LEND, ..) with
 * the same options.
 *
 * Fails with PWK_INVALID if the level or the dictionary is none; PWK_OS if no descriptor is left.
 */
pwk_status pwk_atomic_pair(const pwk_atomic_options *options, pwk_atomic_reader **reader,
                           pwk_atomic_writer **writer, pwk_error *error);

/*
 * Opens the FIFO at `path` for writing as soon as it has a reader.
 *
 * Fails with PWK_TIMED_OUT: the FIFO has no reader. PWK_INTERRUPTED: call again. PWK_INVALID if
 * `path` is a symbolic link or no FIFO; PWK_OS.
 */
pwk_status pwk_atomic_writer_open_fifo(const char *path, const pwk_atomic_options *options,
                                       pwk_deadline deadline, pwk_atomic_writer **writer,
                                       pwk_error *error);

/*
 * Writes to a descriptor: a pipe, a FIFO, or a connected stream socket of the Unix family; with
 * `or_print`, to a terminal, a file or a device, too. Free the handle before you close a
 * descriptor that you have lent: that writes what is pending.
 *
 * Fails with PWK_INVALID if it is none of these, or not open for writing, which pwk_error_text
 * says; PWK_OS if no descriptor is left.
 */
pwk_status pwk_atomic_writer_from_fd(int fd, pwk_fd_how how, const pwk_atomic_options *options,
                                     pwk_atomic_writer **writer, pwk_error *error);

/*
 * Writes what is pending, for as long as that takes, and closes this end. pwk_atomic_writer_close
 * has a deadline, and pwk_atomic_writer_discard drops what is pending.
 */
void pwk_atomic_writer_free(pwk_atomic_writer *writer);

/*
 * Writes what is pending and frees the handle, in any case: after a failure, what is left is
 * dropped.
 *
 * Fails as pwk_atomic_writer_flush, which is to be called first where a signal must not drop
 * anything.
 */
pwk_status pwk_atomic_writer_close(pwk_atomic_writer *writer, pwk_deadline deadline,
                                   pwk_error *error);

/*
 * Another writer of the same pipe with a key of its own, for another thread. Pending data stays
 * here.
 *
 * Fails with PWK_OS if no descriptor is left.
 */
pwk_status pwk_atomic_writer_clone(pwk_atomic_writer *writer, pwk_atomic_writer **clone,
                                   pwk_error *error);

/*
 * Sends one message, after all pending data, and waits until all of it is in the pipe.
 *
 * After any failure the message is not delivered, and may be sent again. Fails with PWK_TIMED_OUT:
 * parts that were in the pipe already reach the reader as a report. PWK_INTERRUPTED, if nothing
 * was in the pipe yet: later signals do not interrupt. PWK_CLOSED: the pipe has no reader; pending
 * data is dropped. PWK_TOO_LONG: more parts than can be counted. PWK_CORRUPT: the kernel has cut a
 * write that POSIX promises to keep whole. PWK_OS.
 */
pwk_status pwk_atomic_writer_send(pwk_atomic_writer *writer, const void *data, size_t len,
                                  pwk_deadline deadline, pwk_error *error);

/* As pwk_atomic_writer_send. `parts` says in how many parts the message goes, at least 1. */
pwk_status pwk_atomic_writer_send_message(pwk_atomic_writer *writer, const void *data, size_t len,
                                          pwk_deadline deadline, uint32_t *parts, pwk_error *error);

/*
 * Sends one message, and does not wait. The bytes that the pipe has no space for are pending, and
 * are written by the next call that writes, or when the handle is freed. PWK_WOULD_BLOCK, and
 * nothing is taken, if more than max_pending bytes would be pending. A longer message than that is
 * taken if nothing is pending and the pipe has space for its first part. PWK_OK may mean that
 * nothing of it is written yet: pwk_atomic_writer_pending says.
 *
 * Fails with PWK_CLOSED, PWK_TOO_LONG, PWK_CORRUPT and PWK_OS as pwk_atomic_writer_send.
 */
pwk_status pwk_atomic_writer_try_send(pwk_atomic_writer *writer, const void *data, size_t len,
                                      pwk_error *error);

/* As pwk_atomic_writer_try_send. `parts` says in how many parts the message goes, at least 1. */
pwk_status pwk_atomic_writer_try_send_message(pwk_atomic_writer *writer, const void *data,
                                              size_t len, uint32_t *parts, pwk_error *error);

/*
 * Sends `count` messages in their order, several small ones in one write, and waits until all are
 * in the pipe. `sent`, which must not be NULL, says how many were sent whole: fewer if the
 * deadline has passed or a signal came in between; then send the rest again.
 *
 * Fails as pwk_atomic_writer_send, if not one was sent.
 */
pwk_status pwk_atomic_writer_send_many(pwk_atomic_writer *writer, const pwk_bytes *messages,
                                       size_t count, pwk_deadline deadline, size_t *sent,
                                       pwk_error *error);

/*
 * Adds one message to the pending data, and writes nothing: for programs that call
 * pwk_atomic_writer_flush. It has no limit but memory.
 *
 * Fails with PWK_TOO_LONG as pwk_atomic_writer_send.
 */
pwk_status pwk_atomic_writer_enqueue(pwk_atomic_writer *writer, const void *data, size_t len,
                                     uint32_t *parts, pwk_error *error);

/*
 * Sends bytes in one write, after all pending data, without a sender's name: in mixed mode between
 * two control bytes, in plain mode as they are, for a reader that is not of this kind.
 *
 * Fails with PWK_TOO_LONG if they do not fit in one write, as pwk_atomic_writer_fits_in_burst
 * says. PWK_INVALID in mixed mode without compression, if they hold 0x0E or 0x0F, or begin with
 * 0x10: they can go as a message. PWK_TIMED_OUT, PWK_INTERRUPTED, PWK_CLOSED, PWK_OS: they were
 * not sent.
 */
pwk_status pwk_atomic_writer_burst(pwk_atomic_writer *writer, const void *data, size_t len,
                                   pwk_deadline deadline, pwk_error *error);

/*
 * As pwk_atomic_writer_burst, without waiting; pending data and PWK_WOULD_BLOCK as
 * pwk_atomic_writer_try_send.
 */
pwk_status pwk_atomic_writer_try_burst(pwk_atomic_writer *writer, const void *data, size_t len,
                                       pwk_error *error);

/*
 * Says whether bytes fit in a burst, and how many it takes in the pipe then, 0 otherwise. If
 * messages are compressed, this compresses.
 *
 * Fails with PWK_TOO_LONG if they are too long for zstd.
 */
pwk_status pwk_atomic_writer_fits_in_burst(pwk_atomic_writer *writer, const void *data, size_t len,
                                           bool *fits, size_t *in_pipe, pwk_error *error);

/* How many bytes are taken and not yet written; 0 for NULL. */
size_t pwk_atomic_writer_pending(pwk_atomic_writer *writer);

/*
 * Writes what is pending; small messages share writes.
 *
 * Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: the rest is still pending, call again. PWK_CLOSED,
 * PWK_CORRUPT and PWK_OS: pending data is dropped.
 */
pwk_status pwk_atomic_writer_flush(pwk_atomic_writer *writer, pwk_deadline deadline,
                                   pwk_error *error);

/*
 * Writes what the pipe has space for; PWK_WOULD_BLOCK while anything is still pending. Otherwise
 * it is as pwk_atomic_writer_flush.
 */
pwk_status pwk_atomic_writer_try_flush(pwk_atomic_writer *writer, pwk_error *error);

/*
 * Drops what is pending. A message that was written in part reaches the reader as a report. NULL
 * is allowed.
 */
void pwk_atomic_writer_discard(pwk_atomic_writer *writer);

/* The key under which the next message goes out; zeros for NULL. */
pwk_key pwk_atomic_writer_key(pwk_atomic_writer *writer);

/*
 * The pipe's descriptor, lent until the handle is freed; -1 for NULL. A child may get it as its
 * stdout, and an event loop may poll it for writing.
 */
int pwk_atomic_writer_fd(pwk_atomic_writer *writer);

/*
 * Bytes of the largest write that the kernel never splits: 4096, or less for a socket with small
 * buffers; 0 for NULL.
 */
size_t pwk_atomic_writer_pipe_buf(pwk_atomic_writer *writer);

/*
 * Bytes of the largest message, as it is in the pipe, that goes out as a single part; 0 for NULL.
 */
size_t pwk_atomic_writer_max_part(pwk_atomic_writer *writer);

/* Whether messages are printed as lines: see pwk_atomic_options.or_print. */
bool pwk_atomic_writer_is_printing(pwk_atomic_writer *writer);

/* Whether text may lie between the messages. */
bool pwk_atomic_writer_is_mixed(pwk_atomic_writer *writer);

/*
 * Changes the mode. The reader must do the same at the same place of the stream.
 *
 * Fails with PWK_WOULD_BLOCK while anything is pending.
 */
pwk_status pwk_atomic_writer_set_mixed(pwk_atomic_writer *writer, bool mixed, pwk_error *error);

/*
 * Sets how messages are compressed from now on: as `compress`, `level` and `dictionary` of the
 * options say; the other fields are ignored. NULL: not at all.
 *
 * Fails with PWK_INVALID if the level or the dictionary is none. The former setting stays then.
 */
pwk_status pwk_atomic_writer_set_zstd(pwk_atomic_writer *writer, const pwk_atomic_options *options,
                                      pwk_error *error);

/*
 * Sets how many bytes may be pending before pwk_atomic_writer_try_send takes no more. NULL is
 * allowed.
 */
void pwk_atomic_writer_set_max_pending(pwk_atomic_writer *writer, size_t bytes);

/*
 * How many bytes the pipe holds before a writer waits.
 *
 * Fails with PWK_UNSUPPORTED for a socket, here and below; PWK_OS.
 */
pwk_status pwk_atomic_writer_capacity(pwk_atomic_writer *writer, size_t *bytes, pwk_error *error);

/*
 * Asks for a capacity; `now` says which one the kernel chose, at least as large. Fails as
 * pwk_atomic_reader_set_capacity.
 */
pwk_status pwk_atomic_writer_set_capacity(pwk_atomic_writer *writer, size_t bytes, size_t *now,
                                          pwk_error *error);

/* As pwk_atomic_writer_set_capacity, with pwk_atomic_max_capacity bytes at the most. */
pwk_status pwk_atomic_writer_set_capacity_or_max(pwk_atomic_writer *writer, size_t bytes,
                                                 size_t *now, pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * Module reqrep: request and response over shared memory. Many clients, many competing servers, no
 * broker.
 *
 * A segment is a file in shared memory, at a path or without a name. Clients put requests into it,
 * each request goes to one of the servers, and each reply goes back to the client that asked. Any
 * process may be killed at any instruction: the others go on, a caller gets PWK_PEER_DIED within
 * 250 ms of the kernel closing that process's files, and the slots of the dead process are taken
 * back.
 *
 * A ticket, 64 bits and never 0, identifies a call: on both sides, from when the request is sent
 * until its reply is received.
 *
 * A call has a slot. It keeps the slot until its client receives the result; or its client cancels
 * it before a server takes it; or, if a server has it and its client no longer waits, that server
 * answers or gives it up. So one thread that sends more calls than there are slots receives in
 * between: pwk_client_try_send, and when that has no slot pwk_client_recv_any. And a server
 * answers each request that it has taken, also if `wanted` is false, with pwk_server_reply or
 * pwk_server_fail.
 *
 * Make slots as long as the usual short request and reply. A longer message is copied into a file in
 * memory, unseen, and its receiver copies it out of that.
 */

/* -------------------------------------------------------------------------------------------------
 * Making and opening a segment, and its counts.
 */

/*
 * A segment that this process has opened. Any threads may use one at the same time. Clients and
 * servers made from it live on when it is freed, with pwk_segment_free.
 */
typedef struct pwk_segment pwk_segment;

/* Not said: the default where a segment is made, any where one is opened. */
#define PWK_UNSET UINT32_MAX

/*
 * How a segment is made or opened. One that is opened has its sizes already: those that are set
 * here must be the same.
 */
typedef struct pwk_segment_options {
    /* sizeof(pwk_segment_options). */
    size_t size;
    /*
     * How many calls can be in progress at the same time, in all clients together: 1 to 2^20, or
     * PWK_UNSET for PWK_DEFAULT_SLOTS. Further callers wait in line.
     */
    uint32_t slots;
    /*
     * How many entries the queue of waiting requests has, cancelled ones included, or PWK_UNSET
     * for twice the slots, which is enough.
     */
    uint32_t queue;
    /*
     * Bytes of the largest request in a slot, or PWK_UNSET for PWK_DEFAULT_REQUEST_BYTES. A longer one
     * lies in a blob, unseen.
     */
    uint32_t request_bytes;
    /* Bytes of the largest reply in a slot, or PWK_UNSET for PWK_DEFAULT_REPLY_BYTES. */
    uint32_t reply_bytes;
    /*
     * How many clients and servers can be attached at the same time: 1 to 65535, or PWK_UNSET for
     * PWK_DEFAULT_MEMBERS.
     */
    uint32_t members;
    /* Permissions of the file; PWK_DEFAULT_MODE by default. */
    uint32_t mode;
    /* Bytes of the largest segment to open; UINT64_MAX, the default, is no limit. */
    uint64_t max_bytes;
    /*
     * For how long clients and servers spin before they park, up to 1 ms; PWK_DEFAULT_SPIN_NS by
     * default.
     */
    uint64_t spin_ns;
    /* Memory for payloads is taken when they are first written, and not all at once. */
    bool sparse;
    /* A segment that belongs to another user may be opened. */
    bool any_owner;
    /* How many blobs a message can carry: 0 to PWK_MAX_BLOBS, or PWK_UNSET for PWK_MAX_BLOBS. */
    uint32_t blobs;
    /*
     * Bytes of shared memory that this process keeps for its next blobs after earlier ones were freed,
     * and as much again of files from other processes; PWK_DEFAULT_BLOB_POOL by default.
     */
    uint64_t blob_pool;
    /*
     * Bytes of all blobs that this process may hold at a time, copies included; UINT64_MAX, the
     * default, is no limit.
     */
    uint64_t blob_limit;
} pwk_segment_options;

/* Fills in the defaults. `size` is sizeof(pwk_segment_options). */
void pwk_segment_options_init(pwk_segment_options *options, size_t size);

/*
 * Makes a segment at `path`, which must not exist. The name appears when the segment is complete.
 *
 * Fails with PWK_INVALID for impossible sizes; PWK_OS with EEXIST if the file exists, with ENOSPC
 * if the file system is full, and so on.
 */
pwk_status pwk_segment_create(const char *path, const pwk_segment_options *options,
                              pwk_segment **segment, pwk_error *error);

/*
 * Opens the segment at `path`.
 *
 * Fails with PWK_OS and ENOENT if the file does not exist; PWK_INVALID for a symbolic link, for
 * anything but a regular file, and for another user's file; PWK_INCOMPATIBLE for a file that is no
 * segment, one of another format or with other sizes than were set, and for a copy; PWK_CORRUPT
 * for one that was damaged or cut short; PWK_TOO_LONG for one larger than max_bytes.
 */
pwk_status pwk_segment_open(const char *path, const pwk_segment_options *options,
                            pwk_segment **segment, pwk_error *error);

/*
 * Opens the segment at `path`, or makes it if it does not exist. If several processes do this at
 * the same time, one of them makes it. An empty regular file of this user counts as none: the
 * segment replaces it. Fails as pwk_segment_open and pwk_segment_create.
 */
pwk_status pwk_segment_open_or_create(const char *path, const pwk_segment_options *options,
                                      pwk_segment **segment, pwk_error *error);

/*
 * Makes a segment without a name, for threads and for processes that are forked from this one.
 * Fails as pwk_segment_create.
 */
pwk_status pwk_segment_anonymous(const pwk_segment_options *options, pwk_segment **segment,
                                 pwk_error *error);

/*
 * As pwk_segment_anonymous; `name`, in UTF-8, shows up in /proc/PID/maps. Other processes open the
 * descriptor that pwk_segment_fd returns, when they were given it.
 */
pwk_status pwk_segment_memfd(const char *name, const pwk_segment_options *options,
                             pwk_segment **segment, pwk_error *error);

/*
 * Opens the segment behind a descriptor, with PWK_FD_TAKE or PWK_FD_DUP. Fails as
 * pwk_segment_open.
 */
pwk_status pwk_segment_from_fd(int fd, pwk_fd_how how, const pwk_segment_options *options,
                               pwk_segment **segment, pwk_error *error);

/* The sizes that a segment was made with. They never change. */
typedef struct pwk_geometry {
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
    /* How many blobs a message can carry. */
    uint32_t blobs;
} pwk_geometry;

/*
 * Fills in the sizes of the segment at `path`, without opening it for anything else: to report
 * them where pwk_segment_open refused it. `size` is sizeof(pwk_geometry). Fails as
 * pwk_segment_open, as far as the file itself is concerned.
 */
pwk_status pwk_geometry_of_path(const char *path, pwk_geometry *geometry, size_t size,
                                pwk_error *error);

/*
 * Frees the handle. Clients and servers that were made from it stay as they are, and so does the
 * file.
 */
void pwk_segment_free(pwk_segment *segment);

/* Fills in the sizes of a segment. `size` is sizeof(pwk_geometry). */
pwk_status pwk_segment_geometry(pwk_segment *segment, pwk_geometry *geometry, size_t size,
                                pwk_error *error);

/*
 * The path at which the segment was made or opened, lent until it is freed; NULL for one without a
 * name.
 */
const char *pwk_segment_path(pwk_segment *segment);

/*
 * The descriptor of the file, lent until the handle is freed; -1 for NULL. It can be passed on to
 * processes that open it with pwk_segment_from_fd.
 */
int pwk_segment_fd(pwk_segment *segment);

/*
 * How many requests wait for a server; 0 for NULL. A call that has ended without a server does not
 * count.
 */
size_t pwk_segment_len(pwk_segment *segment);

/*
 * Removes its name, if that still leads to this segment; `removed` says whether it did. Attached
 * clients and servers stay attached. Then frees the blobs of processes that have ended.
 *
 * Fails with PWK_INVALID for a segment without a name; PWK_OS.
 */
pwk_status pwk_segment_unlink(pwk_segment *segment, bool *removed, pwk_error *error);

/*
 * Writes the segment to the storage that its file lies on, if it lies on any, and waits until that
 * is done.
 *
 * Fails with PWK_OS.
 */
pwk_status pwk_segment_sync(pwk_segment *segment, pwk_error *error);

/*
 * Recovers what dead members held; `dead` says how many had died. Clients that wait do so by
 * themselves.
 *
 * Fails with PWK_OS if the kernel does not say which members are alive; PWK_CORRUPT.
 */
pwk_status pwk_segment_recover(pwk_segment *segment, size_t *dead, pwk_error *error);

/*
 * The counts of a segment, of all members so far. A process that is killed may leave its last step
 * uncounted.
 */
typedef struct pwk_stats {
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
} pwk_stats;

/* Fills in the counts so far. `size` is sizeof(pwk_stats). */
pwk_status pwk_segment_stats(pwk_segment *segment, pwk_stats *stats, size_t size, pwk_error *error);

/* A process's share of the blobs of a segment. */
typedef struct pwk_blob_stats {
    /* Bytes of the blobs that it holds now, drafts and copies included. */
    uint64_t held;
    /*
     * How many blobs it has copied since it opened the segment: those that it received as copies,
     * as pwk_blob_is_copied says, and those that it sent although they were copies or belong to
     * another segment. A message that is longer than a slot does not count.
     */
    uint64_t copied;
} pwk_blob_stats;

/* Fills in this process's share of the blobs of a segment. `size` is sizeof(pwk_blob_stats). */
pwk_status pwk_segment_blob_stats(pwk_segment *segment, pwk_blob_stats *stats, size_t size,
                                  pwk_error *error);

/* A client, in pwk_member.role. */
#define PWK_CLIENT 1
/* A server, in pwk_member.role. */
#define PWK_SERVER 2

/* An attached client or server. */
typedef struct pwk_member {
    /* When it attached, in nanoseconds since 1970. */
    int64_t since_ns;
    /* Its number, counted from 1. */
    uint32_t number;
    /* PWK_CLIENT or PWK_SERVER. */
    uint32_t role;
    /* Its process, as numbered in its own pid namespace. For people. */
    uint32_t pid;
    /* 0 if it died and was not recovered yet, else 1. */
    uint32_t is_alive;
} pwk_member;

/*
 * Fills in up to `max` of the attached members; `count`, which must not be NULL, is set to the
 * number of all.
 *
 * Fails with PWK_OS if the kernel does not say which members are alive; PWK_CORRUPT.
 */
pwk_status pwk_segment_members(pwk_segment *segment, pwk_member *members, size_t max,
                               size_t *count, pwk_error *error);

/*
 * How many slots of a segment are in each state. In a segment that is in use, the counts are not
 * of one moment.
 */
typedef struct pwk_audit {
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
} pwk_audit;

/*
 * Counts the slots in each state. `size` is sizeof(pwk_audit).
 *
 * Fails with PWK_OS if the kernel does not say which members are alive; PWK_CORRUPT.
 */
pwk_status pwk_segment_audit(pwk_segment *segment, pwk_audit *audit, size_t size, pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * The calling end.
 */

/*
 * Sends requests and gets their replies. Any threads may use one at the same time. A child that
 * was forked may use it, as a member of its own; calls in progress stay the parent's. It is freed
 * with pwk_client_free.
 */
typedef struct pwk_client pwk_client;

/* How a client calls. */
typedef struct pwk_client_options {
    /* sizeof(pwk_client_options). */
    size_t size;
    /*
     * Bytes of the longest message that it sends or receives; PWK_DEFAULT_MAX_MESSAGE by default.
     * Copies of the blobs of a reply may have as many bytes together.
     */
    size_t max_message;
    /* How many calls may be in progress at a time; 0, the default, is no limit. */
    uint32_t max_in_flight;
    /*
     * How many times another server may get a request after a server died with it: up to 3, and 0
     * by default. For requests that may be carried out twice. A stream of which a part was given
     * fails with PWK_PEER_DIED all the same.
     */
    uint8_t redeliveries;
    /* A call fails with PWK_NO_SERVER where no server is attached, instead of waiting for one. */
    bool needs_server;
} pwk_client_options;

/* Fills in the defaults. `size` is sizeof(pwk_client_options). */
void pwk_client_options_init(pwk_client_options *options, size_t size);

/*
 * Attaches a client.
 *
 * Fails with PWK_WOULD_BLOCK if all places for members are taken; PWK_CORRUPT if the segment was
 * damaged; PWK_OS.
 */
pwk_status pwk_client_new(pwk_segment *segment, const pwk_client_options *options,
                          pwk_client **client, pwk_error *error);

/*
 * Sends a request and waits for its reply, whose bytes replace the content of `reply`.
 *
 * Waits until the deadline, which covers sending and receiving. After PWK_FAILED, `reply` holds
 * the reason that the server gave, if it gave one; after any other failure it is empty. It must
 * not be where the request lies.
 *
 * Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: the call is cancelled, but a server may have begun
 * with it; to go on after a signal, use pwk_client_send and pwk_client_recv. PWK_PEER_DIED: its
 * server has died. PWK_FAILED: its server gave it up. PWK_TOO_LONG: the request or the reply is
 * longer than max_message. PWK_NO_SERVER: no server is attached, and needs_server was set.
 * PWK_CORRUPT: the segment was damaged. PWK_OS.
 */
pwk_status pwk_client_call(pwk_client *client, const void *data, size_t len, pwk_deadline deadline,
                           pwk_buffer *reply, pwk_error *error);

/* As pwk_client_call, with the 32 bits of flags that go with a request, and those of its reply. */
pwk_status pwk_client_call_message(pwk_client *client, const void *data, size_t len,
                                   uint32_t flags, pwk_deadline deadline, pwk_buffer *reply,
                                   uint32_t *reply_flags, pwk_error *error);

/*
 * As pwk_client_call_message, into memory of the program's: `space` bytes at `into`, which must
 * not be where the request lies. `reply_len` is set to the length of the reply.
 *
 * Fails as pwk_client_call; with PWK_TOO_LONG, too, if the reply is longer than `space`. The reply
 * is lost then, and so is the reason after PWK_FAILED: pwk_client_send and pwk_client_recv_into
 * keep both.
 */
pwk_status pwk_client_call_into(pwk_client *client, const void *data, size_t len, uint32_t flags,
                                pwk_deadline deadline, void *into, size_t space, size_t *reply_len,
                                uint32_t *reply_flags, pwk_error *error);

/*
 * Sends a request; its reply is received by `ticket`. As many calls may be in progress as
 * the segment has slots; a reply that was not received keeps its slot: see module reqrep in
 * pipework(3).
 *
 * Waits until a slot is free, or until the deadline.
 *
 * Fails as pwk_client_call, but never with PWK_PEER_DIED or PWK_FAILED. After any failure, no server
 * has the request, which can be sent again.
 */
pwk_status pwk_client_send(pwk_client *client, const void *data, size_t len, pwk_deadline deadline,
                           uint64_t *ticket, pwk_error *error);

/* As pwk_client_send, with flags. */
pwk_status pwk_client_send_message(pwk_client *client, const void *data, size_t len,
                                   uint32_t flags, pwk_deadline deadline, uint64_t *ticket,
                                   pwk_error *error);

/*
 * Sends a request if a slot is free, else PWK_WOULD_BLOCK. It does not wait.
 *
 * Fails as pwk_client_send, but never with PWK_TIMED_OUT or PWK_INTERRUPTED.
 */
pwk_status pwk_client_try_send(pwk_client *client, const void *data, size_t len, uint64_t *ticket,
                               pwk_error *error);

/* As pwk_client_try_send, with flags. */
pwk_status pwk_client_try_send_message(pwk_client *client, const void *data, size_t len,
                                       uint32_t flags, uint64_t *ticket, pwk_error *error);

/*
 * Sends `count` requests with the same flags, and wakes servers once for all of them. `tickets`
 * has space for as many; `sent`, which must not be NULL, says how many of them were sent: fewer if
 * a failure came in between, which comes again with the next call.
 *
 * Waits until each request had a slot, or until the deadline.
 *
 * Fails as pwk_client_send, if none could be sent.
 */
pwk_status pwk_client_send_many(pwk_client *client, const pwk_bytes *requests, size_t count,
                                uint32_t flags, pwk_deadline deadline, uint64_t *tickets,
                                size_t *sent, pwk_error *error);

/*
 * Waits for the reply of a call, whose bytes replace the content of `reply`. After PWK_FAILED,
 * `reply` holds the reason that the server gave, if it gave one.
 *
 * Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: the call goes on, call again. PWK_PEER_DIED,
 * PWK_FAILED, PWK_NO_SERVER: it is over. PWK_TOO_LONG: the reply is longer than max_message, and
 * the call is over. PWK_STALE: it was over already, or is not this client's. PWK_CORRUPT. PWK_OS:
 * with ENOMEM it is over, with any other number it goes on.
 */
pwk_status pwk_client_recv(pwk_client *client, uint64_t ticket, pwk_deadline deadline,
                           pwk_buffer *reply, pwk_error *error);

/* As pwk_client_recv, with the flags of the reply. */
pwk_status pwk_client_recv_message(pwk_client *client, uint64_t ticket, pwk_deadline deadline,
                                   pwk_buffer *reply, uint32_t *flags, pwk_error *error);

/*
 * The reply of a call if it has come, else PWK_WOULD_BLOCK. It does not wait. Otherwise it is as
 * pwk_client_recv.
 */
pwk_status pwk_client_try_recv(pwk_client *client, uint64_t ticket, pwk_buffer *reply,
                               pwk_error *error);

/* As pwk_client_try_recv, with the flags of the reply. */
pwk_status pwk_client_try_recv_message(pwk_client *client, uint64_t ticket, pwk_buffer *reply,
                                       uint32_t *flags, pwk_error *error);

/*
 * As pwk_client_recv, into memory of the program's: `space` bytes at `into`. `len` says how long
 * the reply is.
 *
 * Fails as pwk_client_recv; with PWK_TOO_LONG, too, if the reply is longer than `space`: then the
 * call goes on, and pwk_client_reply_len says how much space it needs.
 */
pwk_status pwk_client_recv_into(pwk_client *client, uint64_t ticket, pwk_deadline deadline,
                                void *into, size_t space, size_t *len, uint32_t *flags,
                                pwk_error *error);

/*
 * Waits for whichever call of this client ends next: of all that were sent and not received, but
 * no streams. Look at `ticket` first.
 *
 * If it is not 0, that call is over, and this function returns how it ended, with its reply or
 * reason, as pwk_client_recv does. If it is 0 with PWK_OK, no call was in progress, so it waited
 * for nothing. If it is 0 with another status, the wait has failed.
 *
 * The wait fails with PWK_TIMED_OUT, PWK_INTERRUPTED, PWK_CORRUPT and PWK_OS.
 */
pwk_status pwk_client_recv_any(pwk_client *client, pwk_deadline deadline, uint64_t *ticket,
                               pwk_buffer *reply, pwk_error *error);

/* As pwk_client_recv_any, with the flags of the reply. */
pwk_status pwk_client_recv_any_message(pwk_client *client, pwk_deadline deadline, uint64_t *ticket,
                                       pwk_buffer *reply, uint32_t *flags, pwk_error *error);

/* How many bytes of a call's reply have come; 0 if none have. A hint: more may come right after. */
size_t pwk_client_reply_len(pwk_client *client, uint64_t ticket);

/*
 * Cancels a call. `cancelled` is false if its reply is there: then it is to be received. A server
 * that has the request finds out when it replies, and the call keeps its slot until then.
 *
 * Fails with PWK_STALE if the call is over already, or is not this client's.
 */
pwk_status pwk_client_cancel(pwk_client *client, uint64_t ticket, bool *cancelled,
                             pwk_error *error);

/*
 * Gives up the reply of a call, and not the call: its request is carried out, also after this
 * client was freed or this process has ended.
 *
 * Fails as pwk_client_cancel.
 */
pwk_status pwk_client_forget(pwk_client *client, uint64_t ticket, pwk_error *error);

/*
 * Forgets every call in progress, and returns how many they were; 0 for NULL. Before
 * pwk_client_free, so that no request that was sent is taken back. A forked child that has not
 * used the client has none.
 */
size_t pwk_client_forget_all(pwk_client *client);

/* How many calls are in progress: sent, and their replies not received; 0 for NULL. */
size_t pwk_client_pending(pwk_client *client);

/*
 * A descriptor for an event loop, readable while a reply, or a failure in its place, can be
 * received. It is the program's to close, and not to be read from. When it is readable, try to
 * receive each call in progress; as soon as nothing is left, it is not readable any more. A forked
 * child asks for one of its own.
 *
 * Fails with PWK_OS if no descriptor is left, or no thread can be started.
 */
pwk_status pwk_client_doorbell(pwk_client *client, int *fd, pwk_error *error);

/*
 * As pwk_client_doorbell, but readable while a request can be sent: until pwk_client_try_send
 * finds no slot.
 */
pwk_status pwk_client_send_doorbell(pwk_client *client, int *fd, pwk_error *error);

/* The segment that a client is attached to, lent until the client is freed; NULL for NULL. */
pwk_segment *pwk_client_segment(pwk_client *client);

/* Leaves the segment. A request that no server has taken is taken back, unless it was forgotten. */
void pwk_client_free(pwk_client *client);

/* -------------------------------------------------------------------------------------------------
 * A reply that is received part by part, as its server gives it.
 */

/*
 * The parts of a reply. One thread at a time. Freeing it, with pwk_stream_free, before its end
 * cancels the call, and the server learns this with its next part.
 */
typedef struct pwk_stream pwk_stream;

/*
 * Sends a request whose reply is received part by part. A server that answers at once gives one
 * part. An empty last reply only ends the stream.
 *
 * Waits and fails as pwk_client_send.
 */
pwk_status pwk_client_stream(pwk_client *client, const void *data, size_t len, uint32_t flags,
                             pwk_deadline deadline, pwk_stream **stream, pwk_error *error);

/*
 * Waits for the next part, whose bytes replace the content of `part`.
 *
 * Fails with PWK_CLOSED after the last. PWK_TIMED_OUT and PWK_INTERRUPTED: the stream goes on,
 * call again. It is over after anything else: PWK_FAILED, where `part` holds the reason that the
 * server gave, if it gave one; PWK_PEER_DIED, PWK_NO_SERVER, PWK_TOO_LONG, PWK_CORRUPT and PWK_OS
 * as pwk_client_recv.
 */
pwk_status pwk_stream_next_part(pwk_stream *stream, pwk_deadline deadline, pwk_buffer *part,
                                uint32_t *flags, pwk_error *error);

/* Ends the call, if it is not over. */
void pwk_stream_free(pwk_stream *stream);

/* -------------------------------------------------------------------------------------------------
 * The answering end. Requests are answered by their tickets.
 */

/*
 * Takes requests from a segment and answers them. Any threads may use one at the same time, and
 * any number of servers, in any number of processes, compete for the requests: each goes to one of
 * them. A child that was forked may use it, as a member of its own; requests taken before stay the
 * parent's. It is freed with pwk_server_free.
 */
typedef struct pwk_server pwk_server;

/*
 * A request that a server has taken, and that no other server gets. It is answered by its ticket,
 * once: with pwk_server_reply or pwk_server_fail. It keeps its slot until then, or until the
 * server is freed, even if its client no longer waits for it.
 */
typedef struct pwk_request {
    /* The ticket of the call, the same as pwk_client_send has given out. */
    uint64_t ticket;
    /* The offset of its bytes in the buffer: 0, unless several requests came in it. */
    size_t offset;
    /* How many they are. */
    size_t len;
    /* The 32 bits that the client sent with it. */
    uint32_t flags;
    /* How many servers have died with this request. */
    uint16_t redeliveries;
} pwk_request;

/* How a server answers. */
typedef struct pwk_server_options {
    /* sizeof(pwk_server_options). */
    size_t size;
    /*
     * Bytes of the longest message that it receives or answers with; PWK_DEFAULT_MAX_MESSAGE by
     * default. Copies of the blobs of a request may have as many bytes together.
     */
    size_t max_message;
    /*
     * For how long a client may take for a part that the reply comes after;
     * PWK_DEFAULT_PART_TIMEOUT_NS by default.
     */
    uint64_t part_timeout_ns;
} pwk_server_options;

/* Fills in the defaults. `size` is sizeof(pwk_server_options). */
void pwk_server_options_init(pwk_server_options *options, size_t size);

/* Attaches a server. Fails as pwk_client_new. */
pwk_status pwk_server_new(pwk_segment *segment, const pwk_server_options *options,
                          pwk_server **server, pwk_error *error);

/*
 * Waits for the next request, whose bytes replace the content of `data`.
 *
 * Fails with PWK_TIMED_OUT; PWK_INTERRUPTED; PWK_CLOSED once the server was stopped; PWK_CORRUPT
 * if the segment was damaged; PWK_OS, for instance with EMFILE; PWK_TOO_LONG if this process holds as
 * many bytes of blobs as blob_limit allows. If this process lacks a descriptor, memory or bytes of
 * blobs, the request stays for another server or a later call.
 */
pwk_status pwk_server_recv(pwk_server *server, pwk_deadline deadline, pwk_buffer *data,
                           pwk_request *request, pwk_error *error);

/*
 * The next request if one waits, else PWK_WOULD_BLOCK. It does not wait. Otherwise it is as
 * pwk_server_recv.
 */
pwk_status pwk_server_try_recv(pwk_server *server, pwk_buffer *data, pwk_request *request,
                               pwk_error *error);

/*
 * Takes up to `max` requests: waits for the first, then takes those that are there, and for
 * `linger_ns` nanoseconds those that come. Their bytes are put one after the other into `data`,
 * where each request says its offset; `count` says how many they are.
 *
 * Fails as pwk_server_recv. Requests that were taken before a failure are returned, and the
 * failure comes again with the next call.
 */
pwk_status pwk_server_recv_many(pwk_server *server, size_t max, pwk_deadline deadline,
                                uint64_t linger_ns, pwk_buffer *data, pwk_request *requests,
                                size_t *count, pwk_error *error);

/*
 * As pwk_server_recv_many, with the requests that wait now. It does not wait, and `count` may be
 * 0.
 */
pwk_status pwk_server_drain(pwk_server *server, size_t max, pwk_buffer *data,
                            pwk_request *requests, size_t *count, pwk_error *error);

/*
 * Answers a request. If its client has cancelled or forgotten the call, or has died, that is no
 * failure: pwk_server_reply_message says so in `wanted`.
 *
 * It waits only after pwk_server_part, until the client has taken that part, for which it has
 * part_timeout_ns, whatever signals come.
 *
 * Fails with PWK_TOO_LONG if the reply is longer than max_message: then the request is still to be
 * answered. It is over after any other failure: PWK_STALE if the ticket is none that this server
 * has to answer; PWK_TIMED_OUT if the client has not taken the part in time; PWK_CORRUPT;
 * PWK_OS, with ENOSPC if no memory is left for a long reply.
 */
pwk_status pwk_server_reply(pwk_server *server, uint64_t ticket, const void *data, size_t len,
                            pwk_error *error);

/*
 * As pwk_server_reply, with flags. `wanted` says whether the client still waited: false if it has
 * cancelled or forgotten the call, or if its death was noticed.
 */
pwk_status pwk_server_reply_message(pwk_server *server, uint64_t ticket, const void *data,
                                    size_t len, uint32_t flags, bool *wanted, pwk_error *error);

/*
 * As pwk_server_reply_message, but waits for the client until the deadline.
 *
 * Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: it was not given, and the request is still to be
 * answered. Otherwise as pwk_server_reply.
 */
pwk_status pwk_server_reply_until(pwk_server *server, uint64_t ticket, const void *data,
                                  size_t len, uint32_t flags, pwk_deadline deadline, bool *wanted,
                                  pwk_error *error);

/*
 * Gives the client a part of the reply, which it gets as soon as it asks for it; then come other
 * parts, or pwk_server_reply. `wanted` is false if the call is not waited for any more: the client
 * has cancelled or forgotten it, or its death was noticed; pwk_server_fail ends the request then.
 * A client that does not ask for parts gets all of them as one reply: they are collected in this
 * process until then.
 *
 * Waits until the client has taken the part before, or until the deadline.
 *
 * Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: it was not given, and can be given again.
 * PWK_TOO_LONG if it is longer than max_message, or what is collected would be. PWK_STALE,
 * PWK_CORRUPT and PWK_OS as pwk_server_reply, but the request is not over.
 */
pwk_status pwk_server_part(pwk_server *server, uint64_t ticket, const void *data, size_t len,
                           uint32_t flags, pwk_deadline deadline, bool *wanted, pwk_error *error);

/*
 * Waits until the client has taken the part that pwk_server_part gave last, or until the deadline.
 * `wanted` is as for pwk_server_part. Call it before pwk_server_fail, whose reason does not fit
 * beside a part that was not taken.
 *
 * Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: it has not taken it yet. PWK_STALE, PWK_CORRUPT
 * and PWK_OS as pwk_server_reply.
 */
pwk_status pwk_server_flush(pwk_server *server, uint64_t ticket, pwk_deadline deadline,
                            bool *wanted, pwk_error *error);

/*
 * Gives a request up: its call fails with PWK_FAILED, and its client gets the reason, bytes of
 * which as many arrive as a reply in one slot has. There may be none. `wanted` says whether the
 * client still waited.
 *
 * Fails with PWK_STALE if the ticket is none that this server has to answer.
 */
pwk_status pwk_server_fail(pwk_server *server, uint64_t ticket, const void *reason, size_t len,
                           bool *wanted, pwk_error *error);

/*
 * Whether a request is to be carried out: `wanted` is false once its client has cancelled, or its
 * death was noticed, as it is within 250 ms where this is asked again and again; pwk_server_fail
 * ends the request then.
 *
 * Fails with PWK_STALE if the ticket is none that this server has to answer.
 */
pwk_status pwk_server_is_wanted(pwk_server *server, uint64_t ticket, bool *wanted,
                                pwk_error *error);

/*
 * How many servers have died with a request: the same as pwk_request.redeliveries.
 *
 * Fails with PWK_STALE if the ticket is none that this server has to answer.
 */
pwk_status pwk_server_redeliveries(pwk_server *server, uint64_t ticket, uint16_t *redeliveries,
                                   pwk_error *error);

/*
 * In a forked child, makes a request its own that the parent had taken when it forked: for servers
 * that fork for each request. The parent must not answer it any more, and gets PWK_STALE.
 *
 * Fails with PWK_STALE if the parent has answered it or has died, if it has given a part of the
 * reply, or if the ticket is none that it had to answer. It also fails as pwk_server_new, since
 * the child attaches.
 */
pwk_status pwk_server_adopt(pwk_server *server, uint64_t ticket, pwk_error *error);

/*
 * Fails all requests that wait now; `count` says how many they were.
 *
 * Fails as pwk_server_try_recv.
 */
pwk_status pwk_server_clear(pwk_server *server, size_t *count, pwk_error *error);

/*
 * Stops a server: from now on, calls that receive fail with PWK_CLOSED at once, and no more
 * requests are taken. Requests that were taken can be answered. Any thread may call it; it does
 * not wait. NULL is allowed. To stop on a signal, block it in all threads, and have one wait for
 * it with sigwait and then call this.
 */
void pwk_server_stop(pwk_server *server);

/*
 * A descriptor for an event loop, readable while a request waits, and once the server was stopped.
 * It is the program's to close, and not to be read from. When it is readable, take requests with
 * pwk_server_try_recv or pwk_server_drain until no request is left. A forked child asks for one of
 * its own.
 *
 * Fails with PWK_OS if no descriptor is left, or no thread can be started.
 */
pwk_status pwk_server_doorbell(pwk_server *server, int *fd, pwk_error *error);

/* The segment that a server is attached to, lent until the server is freed; NULL for NULL. */
pwk_segment *pwk_server_segment(pwk_server *server);

/* Leaves the segment. Requests that it has taken and not answered fail at their clients. */
void pwk_server_free(pwk_server *server);

/* -------------------------------------------------------------------------------------------------
 * Blobs: memory that is filled once, frozen, and read in place by every process that holds it.
 *
 * A program makes a draft in a segment, fills it, freezes it to a blob, and attaches the blob to
 * messages of that segment. A message names its blobs and copies none of their bytes. A blob is
 * freed when its last holder has dropped it or died, and no message on its way names it. If a
 * process dies, at any instruction, the others lose nothing.
 *
 * Every function here that returns a blob returns a new handle, which the program frees with
 * pwk_blob_free or pwk_blobs_free. A handle that is attached to a message still belongs to the
 * program, which may free it as soon as the function returns.
 *
 * The functions that receive into memory of the program's, pwk_client_call_into and
 * pwk_client_recv_into, drop the blobs of a reply: what arrives as a blob needs no such memory. The
 * reason of pwk_server_fail is short, and has no blobs.
 */

/*
 * Bytes in shared memory that do not change as long as any process holds them. Any threads may use
 * one at the same time. A forked child may read those that it inherits. It frees its own handles,
 * and the memory stays until both processes have freed theirs. Free a blob with pwk_blob_free.
 */
typedef struct pwk_blob pwk_blob;

/*
 * Memory for a blob. Only this process can access it until it is frozen. Any threads may write to
 * its memory; one thread at a time may call functions on it. A forked child cannot use it, and may
 * free it. Free a draft with pwk_blob_draft_free, also after it was frozen.
 */
typedef struct pwk_blob_draft pwk_blob_draft;

/*
 * Makes a draft of `len` bytes, for messages of this segment. Its memory may hold bytes of an earlier
 * blob of this process, so fill all of it.
 *
 * It does not wait for other processes. The first blob of a size has its memory allocated here;
 * later ones use it again.
 *
 * Fails with PWK_OS: with ENOSPC if there is no memory for it, with EMFILE if no descriptor is left,
 * or with the kernel's number for the folder beside the segment. PWK_TOO_LONG if this process would
 * hold more than blob_limit.
 */
pwk_status pwk_blob_draft_new(pwk_segment *segment, size_t len, pwk_blob_draft **draft,
                              pwk_error *error);

/*
 * The memory of a draft, lent until it is frozen or freed. It begins at a page. NULL and 0 after
 * pwk_blob_draft_freeze, in a forked child, and for NULL.
 */
pwk_space pwk_blob_draft_space(pwk_blob_draft *draft);

/*
 * Makes a blob of a draft: from now on no process changes its bytes. The program must neither
 * write to the memory that pwk_blob_draft_space returned nor read from it. The draft is of no more
 * use, but must still be freed.
 *
 * Fails with PWK_STALE if it was frozen before, or belongs to the parent of this process. Fails
 * with PWK_CORRUPT if its file was cut short and bytes are lost; its memory is given back.
 */
pwk_status pwk_blob_draft_freeze(pwk_blob_draft *draft, pwk_blob **blob, pwk_error *error);

/* Frees a draft. If it was not frozen, its memory is used for a later blob. */
void pwk_blob_draft_free(pwk_blob_draft *draft);

/*
 * The bytes of a blob, lent until its handle is freed. NULL and 0 for NULL. Writing to them ends the
 * program with SIGSEGV, or changes a copy.
 */
pwk_bytes pwk_blob_bytes(pwk_blob *blob);

/*
 * Whether this process got its own copy of a blob, because another user owns its file or may
 * change it; false for NULL. pwk_blob_stats.copied counts these copies, too.
 */
bool pwk_blob_is_copied(pwk_blob *blob);

/*
 * Fails with PWK_CORRUPT if bytes of a blob are lost, because a process has cut its file short.
 * The lost bytes read as zero.
 */
pwk_status pwk_blob_check(pwk_blob *blob, pwk_error *error);

/* Makes another handle of the same blob. The bytes are not copied. */
pwk_status pwk_blob_clone(pwk_blob *blob, pwk_blob **clone, pwk_error *error);

/*
 * Frees a handle of a blob. The memory is freed with the last handle of the last process, when no
 * message on its way names it.
 */
void pwk_blob_free(pwk_blob *blob);

/* The most blobs that a message can carry. pwk_geometry.blobs is the limit of one segment. */
#define PWK_MAX_BLOBS 8

/*
 * The blobs that came with a message. A program sets it to PWK_BLOBS before the first use, may use
 * it many times, and gives it to pwk_blobs_free in the end. It may take a handle out, and must
 * then set its place to NULL. One thread at a time may use it.
 */
typedef struct pwk_blobs {
    /* The first `count` of them; the others are NULL. */
    pwk_blob *blobs[8];
    /* The number of blobs that came. */
    size_t count;
} pwk_blobs;

/* No blobs: the initial value. */
#define PWK_BLOBS {{NULL}, 0}

/* Frees the blobs. `blobs` is empty then, and may be used again. NULL is allowed. */
void pwk_blobs_free(pwk_blobs *blobs);

/*
 * A request, a reply, a part of a reply, or a message of broadcast, with blobs. Everything in it is lent
 * for the call.
 */
typedef struct pwk_message {
    /* The bytes; may be NULL if `len` is 0. */
    const void *data;
    /* The number of bytes. */
    size_t len;
    /*
     * An array of the blobs; may be NULL if `blob_count` is 0. A blob of another segment, and one that
     * was copied, is copied into a new blob of this segment.
     */
    pwk_blob *const *blobs;
    /* The number of blobs: up to pwk_geometry.blobs, which is at most PWK_MAX_BLOBS. */
    size_t blob_count;
    /* The user's 32 bits that go with it. */
    uint32_t flags;
} pwk_message;

/*
 * As pwk_client_call_message, with blobs both ways. The blobs of the reply replace the content of
 * `blobs`, which is freed. After any failure, `blobs` is empty. If `blobs` is NULL, the blobs are
 * dropped.
 *
 * Fails as pwk_client_call. Also fails with PWK_TOO_LONG if the message has more blobs than the
 * segment allows, or if this process would hold more than blob_limit; with PWK_CORRUPT or PWK_OS
 * if a blob of the reply cannot be opened.
 */
pwk_status pwk_client_call_blobs(pwk_client *client, const pwk_message *request,
                                 pwk_deadline deadline, pwk_buffer *reply, uint32_t *flags,
                                 pwk_blobs *blobs, pwk_error *error);

/*
 * As pwk_client_send_message, with blobs.
 *
 * Fails as pwk_client_send. Also fails with PWK_TOO_LONG if the message has more blobs than the
 * segment allows.
 */
pwk_status pwk_client_send_blobs(pwk_client *client, const pwk_message *request,
                                 pwk_deadline deadline, uint64_t *ticket, pwk_error *error);

/* As pwk_client_try_send_message, with blobs. Fails as pwk_client_send_blobs. */
pwk_status pwk_client_try_send_blobs(pwk_client *client, const pwk_message *request,
                                     uint64_t *ticket, pwk_error *error);

/*
 * As pwk_client_send_many, with blobs, and with flags for each request.
 *
 * Fails as pwk_client_send_blobs, if none could be sent.
 */
pwk_status pwk_client_send_many_blobs(pwk_client *client, const pwk_message *requests,
                                      size_t count, pwk_deadline deadline, uint64_t *tickets,
                                      size_t *sent, pwk_error *error);

/*
 * As pwk_client_recv_message, with the blobs of the reply, as pwk_client_call_blobs.
 *
 * Fails as pwk_client_recv. If a blob cannot be opened, the call is over, with PWK_TOO_LONG,
 * PWK_CORRUPT or PWK_OS.
 */
pwk_status pwk_client_recv_blobs(pwk_client *client, uint64_t ticket, pwk_deadline deadline,
                                 pwk_buffer *reply, uint32_t *flags, pwk_blobs *blobs,
                                 pwk_error *error);

/* As pwk_client_try_recv_message, with the blobs of the reply. Fails as pwk_client_recv_blobs. */
pwk_status pwk_client_try_recv_blobs(pwk_client *client, uint64_t ticket, pwk_buffer *reply,
                                     uint32_t *flags, pwk_blobs *blobs, pwk_error *error);

/* As pwk_client_recv_any_message, with the blobs of the reply. */
pwk_status pwk_client_recv_any_blobs(pwk_client *client, pwk_deadline deadline, uint64_t *ticket,
                                     pwk_buffer *reply, uint32_t *flags, pwk_blobs *blobs,
                                     pwk_error *error);

/* As pwk_client_stream, with blobs. Fails as pwk_client_send_blobs. */
pwk_status pwk_client_stream_blobs(pwk_client *client, const pwk_message *request,
                                   pwk_deadline deadline, pwk_stream **stream, pwk_error *error);

/* As pwk_stream_next_part, with the blobs of the part, as pwk_client_call_blobs. */
pwk_status pwk_stream_next_part_blobs(pwk_stream *stream, pwk_deadline deadline, pwk_buffer *part,
                                      uint32_t *flags, pwk_blobs *blobs, pwk_error *error);

/*
 * The blobs of a request that a server has taken. They replace the content of `blobs`. A program
 * can ask for them until it answers the request, and keeps them after that.
 *
 * Fails with PWK_STALE if this server has no open request with that ticket. If a blob cannot be
 * opened: PWK_TOO_LONG, PWK_CORRUPT or PWK_OS. Then the request must still be answered.
 */
pwk_status pwk_server_blobs(pwk_server *server, uint64_t ticket, pwk_blobs *blobs,
                            pwk_error *error);

/*
 * As pwk_server_reply_until, with blobs.
 *
 * Fails as pwk_server_reply_until. Also fails with PWK_TOO_LONG if the message has more blobs than
 * the segment allows: then the request must still be answered.
 */
pwk_status pwk_server_reply_blobs(pwk_server *server, uint64_t ticket, const pwk_message *reply,
                                  pwk_deadline deadline, bool *wanted, pwk_error *error);

/*
 * As pwk_server_part, with blobs.
 *
 * Fails as pwk_server_part. Also fails with PWK_TOO_LONG if the message has more blobs than the
 * segment allows.
 */
pwk_status pwk_server_part_blobs(pwk_server *server, uint64_t ticket, const pwk_message *part,
                                 pwk_deadline deadline, bool *wanted, pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * Module broadcast: one message to many receivers through shared memory. Any number of publishers and
 * subscribers, no broker.
 *
 * A channel is a ring of messages in a file in shared memory, at a path or without a name. All
 * subscribers get the messages in one order, each message once and whole. Each subscriber decides what
 * happens if it is too slow. By default it may lag: publishers never wait for it, and PWK_LAGGED says how
 * many messages it has missed. With must_see_all, publishers wait for it.
 *
 * Any process may be killed at any instruction, and the others go on. A message of a publisher that was
 * killed is received by all or by none. A process that is stopped is alive: a stopped subscriber that
 * must see all holds up publishers until their deadline, and pwk_error_process names it.
 *
 * A message has a number: the first one of a channel has 1. A subscriber may go on after the number that
 * it received last, also after a restart.
 *
 * Make cells as long as the usual short message. A longer message is copied into a file in memory,
 * unseen, and subscribers read it there.
 */

/* -------------------------------------------------------------------------------------------------
 * Making and opening a channel of broadcast, and its counts.
 */

/*
 * A channel of broadcast that this process has opened. Any threads may use one at the same time.
 * Publishers and subscribers made from it live on when it is freed, with pwk_broadcast_free.
 */
typedef struct pwk_broadcast pwk_broadcast;

/*
 * How a channel is made or opened. One that is opened has its sizes already: those that are set here
 * must be the same.
 */
typedef struct pwk_broadcast_options {
    /* sizeof(pwk_broadcast_options). */
    size_t size;
    /*
     * How many messages the ring keeps, rounded up to a power of two: 2 to 2^20, or PWK_UNSET for
     * PWK_DEFAULT_MESSAGES.
     */
    uint32_t messages;
    /*
     * Bytes of the longest message in a cell of the ring, at most 2^30, or PWK_UNSET for
     * PWK_DEFAULT_MESSAGE_BYTES. A longer one lies in a blob, unseen.
     */
    uint32_t message_bytes;
    /*
     * How many publishers and subscribers can be attached at the same time: 1 to 65535, or PWK_UNSET
     * for PWK_DEFAULT_MEMBERS.
     */
    uint32_t members;
    /* How many blobs a message can carry: 0 to PWK_MAX_BLOBS, or PWK_UNSET for PWK_MAX_BLOBS. */
    uint32_t blobs;
    /*
     * Processes that may only read the file can subscribe: see read_only. Every message then costs a
     * system call. By default they cannot, and a channel of either kind is opened.
     */
    bool observers;
    /* A channel that belongs to another user may be opened. */
    bool any_owner;
    /*
     * The channel is opened only for reading. This process can then disturb nobody. It cannot publish,
     * and its subscribers may lag, copy every message, and are no members. The channel must have been
     * made with observers.
     */
    bool read_only;
    /* Permissions of the file; PWK_DEFAULT_MODE by default. With 0644 every user can observe. */
    uint32_t mode;
    /* Bytes of the largest channel to open; UINT64_MAX, the default, is no limit. */
    uint64_t max_bytes;
    /*
     * For how long publishers and subscribers spin before they park, up to 1 ms; PWK_DEFAULT_SPIN_NS by
     * default.
     */
    uint64_t spin_ns;
    /*
     * Bytes of shared memory that this process keeps for its next blobs after earlier ones were freed,
     * and as much again of files from other processes; PWK_DEFAULT_BLOB_POOL by default.
     */
    uint64_t blob_pool;
    /*
     * Bytes of all blobs that this process may hold at a time, copies included; UINT64_MAX, the
     * default, is no limit.
     */
    uint64_t blob_limit;
} pwk_broadcast_options;

/* Fills in the defaults. `size` is sizeof(pwk_broadcast_options). */
void pwk_broadcast_options_init(pwk_broadcast_options *options, size_t size);

/*
 * Makes a channel at `path`, which must not exist. The name appears when the channel is complete.
 *
 * Fails with PWK_INVALID for impossible sizes; PWK_OS with EEXIST if the file exists, with ENOSPC if
 * the file system is full, and so on.
 */
pwk_status pwk_broadcast_create(const char *path, const pwk_broadcast_options *options,
                                pwk_broadcast **broadcast, pwk_error *error);

/*
 * Opens the channel at `path`. Fails as pwk_segment_open; a segment of calls is PWK_INCOMPATIBLE.
 */
pwk_status pwk_broadcast_open(const char *path, const pwk_broadcast_options *options,
                              pwk_broadcast **broadcast, pwk_error *error);

/*
 * Opens the channel at `path`, or makes it if it does not exist. If several processes do this at the
 * same time, one of them makes it. An empty regular file of this user counts as none: the channel
 * replaces it. Fails as pwk_broadcast_open and pwk_broadcast_create; with PWK_INVALID for read_only.
 */
pwk_status pwk_broadcast_open_or_create(const char *path, const pwk_broadcast_options *options,
                                        pwk_broadcast **broadcast, pwk_error *error);

/*
 * Makes a channel without a name, for threads and for processes that are forked from this one. Fails
 * as pwk_broadcast_create.
 */
pwk_status pwk_broadcast_anonymous(const pwk_broadcast_options *options, pwk_broadcast **broadcast,
                                   pwk_error *error);

/*
 * As pwk_broadcast_anonymous; `name`, in UTF-8, shows up in /proc/PID/maps. Other processes open the
 * descriptor that pwk_broadcast_fd returns, when they were given it.
 */
pwk_status pwk_broadcast_memfd(const char *name, const pwk_broadcast_options *options,
                               pwk_broadcast **broadcast, pwk_error *error);

/*
 * Opens the channel behind a descriptor, with PWK_FD_TAKE or PWK_FD_DUP. Fails as
 * pwk_broadcast_open.
 */
pwk_status pwk_broadcast_from_fd(int fd, pwk_fd_how how, const pwk_broadcast_options *options,
                                 pwk_broadcast **broadcast, pwk_error *error);

/* The sizes that a channel was made with. They never change. */
typedef struct pwk_broadcast_sizes {
    /* How many messages the ring keeps, a power of two. */
    uint32_t messages;
    /* Bytes of the longest message in a cell of the ring. */
    uint32_t message_bytes;
    /* How many publishers and subscribers can be attached at the same time. */
    uint32_t members;
    /* How many blobs a message can carry. */
    uint32_t blobs;
    /* 1 if processes that may only read the file can subscribe, else 0. */
    uint32_t observers;
} pwk_broadcast_sizes;

/*
 * Fills in the sizes of the channel at `path`, without opening it for anything else: to report them
 * where pwk_broadcast_open refused it. `size` is sizeof(pwk_broadcast_sizes). Fails as
 * pwk_broadcast_open, as far as the file itself is concerned.
 */
pwk_status pwk_broadcast_geometry_of_path(const char *path, pwk_broadcast_sizes *sizes,
                                          size_t size, pwk_error *error);

/*
 * Frees the handle. Publishers and subscribers that were made from it stay as they are, and so does
 * the file.
 */
void pwk_broadcast_free(pwk_broadcast *broadcast);

/* Fills in the sizes of a channel. `size` is sizeof(pwk_broadcast_sizes). */
pwk_status pwk_broadcast_geometry(pwk_broadcast *broadcast, pwk_broadcast_sizes *sizes,
                                  size_t size, pwk_error *error);

/*
 * The path at which the channel was made or opened, lent until it is freed; NULL for one without a
 * name.
 */
const char *pwk_broadcast_path(pwk_broadcast *broadcast);

/*
 * The descriptor of the file, lent until the handle is freed; -1 for NULL. It can be passed on to
 * processes that open it with pwk_broadcast_from_fd.
 */
int pwk_broadcast_fd(pwk_broadcast *broadcast);

/*
 * The number of the newest message, or of one that is just being published; 0 if there was none, and
 * for NULL.
 */
uint64_t pwk_broadcast_newest(pwk_broadcast *broadcast);

/*
 * Removes its name, if that still leads to this channel; `removed` says whether it did. Attached
 * publishers and subscribers stay attached. Then frees the blobs of processes that have ended.
 *
 * Fails with PWK_INVALID for a channel without a name; PWK_UNSUPPORTED if it was opened with
 * read_only; PWK_OS.
 */
pwk_status pwk_broadcast_unlink(pwk_broadcast *broadcast, bool *removed, pwk_error *error);

/*
 * Writes the channel to the storage that its file lies on, if it lies on any, and waits until that is
 * done.
 *
 * Fails with PWK_OS.
 */
pwk_status pwk_broadcast_sync(pwk_broadcast *broadcast, pwk_error *error);

/*
 * Recovers what dead members held; `dead` says how many had died. Publishers and subscribers that wait
 * do so by themselves.
 *
 * Fails with PWK_OS if the kernel does not say which members are alive; PWK_CORRUPT; PWK_UNSUPPORTED if
 * the channel was opened with read_only.
 */
pwk_status pwk_broadcast_recover(pwk_broadcast *broadcast, size_t *dead, pwk_error *error);

/*
 * The counts of a channel, of all members so far. A process that is killed may leave its last step
 * uncounted.
 */
typedef struct pwk_broadcast_counts {
    /* Messages published. */
    uint64_t published;
    /* Numbers that were passed over, because their publisher was killed. */
    uint64_t skipped;
    /* Messages that subscribers have missed, all together. */
    uint64_t missed;
    /* Times that a publisher had to wait for room in the ring. */
    uint64_t full;
    /* Members that died without leaving. */
    uint64_t dead_members;
    /* Cells and places in the ring that were recovered from them. */
    uint64_t recovered;
} pwk_broadcast_counts;

/* Fills in the counts so far. `size` is sizeof(pwk_broadcast_counts). */
pwk_status pwk_broadcast_stats(pwk_broadcast *broadcast, pwk_broadcast_counts *counts, size_t size,
                               pwk_error *error);

/* Fills in this process's share of the blobs of a channel. `size` is sizeof(pwk_blob_stats). */
pwk_status pwk_broadcast_blob_stats(pwk_broadcast *broadcast, pwk_blob_stats *stats, size_t size,
                                    pwk_error *error);

/*
 * Makes a draft of `len` bytes for a blob, as pwk_blob_draft_new does for calls. The blob is attached to
 * messages of this channel.
 *
 * Fails as pwk_blob_draft_new; with PWK_UNSUPPORTED if the channel was opened with read_only.
 */
pwk_status pwk_blob_draft_for_broadcast(pwk_broadcast *broadcast, size_t len,
                                        pwk_blob_draft **draft, pwk_error *error);

/* A publisher, in pwk_broadcast_member.role. */
#define PWK_PUBLISHER 1
/* A subscriber, in pwk_broadcast_member.role. */
#define PWK_SUBSCRIBER 2

/* An attached publisher or subscriber. A process that opened the channel with read_only is none. */
typedef struct pwk_broadcast_member {
    /* When it attached, in nanoseconds since 1970. */
    int64_t since_ns;
    /* How many messages it has not received, if it is a subscriber; otherwise 0. */
    uint64_t lag;
    /* Its number, counted from 1. */
    uint32_t number;
    /* PWK_PUBLISHER or PWK_SUBSCRIBER. */
    uint32_t role;
    /* Its process, as numbered in its own pid namespace. For people. */
    uint32_t pid;
    /* 1 if publishers wait for it, else 0. */
    uint32_t must_see_all;
    /* 0 if it died and was not recovered yet, else 1. */
    uint32_t is_alive;
} pwk_broadcast_member;

/*
 * Fills in up to `max` of the attached members; `count`, which must not be NULL, is set to the number
 * of all.
 *
 * Fails with PWK_OS if the kernel does not say which members are alive; PWK_CORRUPT.
 */
pwk_status pwk_broadcast_members(pwk_broadcast *broadcast, pwk_broadcast_member *members,
                                 size_t max, size_t *count, pwk_error *error);

/*
 * How many cells of a channel's ring are in each state. In a channel that is in use, the counts are
 * not of one moment.
 */
typedef struct pwk_broadcast_cells {
    /* Never used. */
    uint64_t empty;
    /* A publisher is writing a message. */
    uint64_t writing;
    /* It has a message. */
    uint64_t done;
    /* Its number was passed over. */
    uint64_t skipped;
    /* Its message was dropped: see pwk_publisher_options.keep_bytes. */
    uint64_t dropped;
    /*
     * Of the cells that are being written, and of the subscribers that must see all: those of members
     * that are gone. Recovery frees them.
     */
    uint64_t orphaned;
} pwk_broadcast_cells;

/*
 * Counts the cells in each state. `size` is sizeof(pwk_broadcast_cells).
 *
 * Fails with PWK_OS if the kernel does not say which members are alive; PWK_CORRUPT.
 */
pwk_status pwk_broadcast_audit(pwk_broadcast *broadcast, pwk_broadcast_cells *cells, size_t size,
                               pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * The publishing end of broadcast.
 */

/*
 * Publishes messages to a channel. Any threads may use one at the same time. A child that was forked
 * may use it, as a member of its own. It is freed with pwk_publisher_free.
 */
typedef struct pwk_publisher pwk_publisher;

/* How a publisher works. */
typedef struct pwk_publisher_options {
    /* sizeof(pwk_publisher_options). */
    size_t size;
    /*
     * Bytes of the longest message; PWK_DEFAULT_MAX_MESSAGE by default. A message that fits into a
     * cell is never too long.
     */
    size_t max_message;
    /*
     * Bytes of this publisher's messages that the ring keeps in blobs, with those that are attached;
     * PWK_DEFAULT_KEEP_BYTES by default. When a message would exceed it, the publisher first drops its
     * oldest ones: a subscriber that may lag and has not received one has missed it, and for those that
     * must see all the publisher waits. The newest message stays, whatever its size.
     */
    uint64_t keep_bytes;
} pwk_publisher_options;

/* Fills in the defaults. `size` is sizeof(pwk_publisher_options). */
void pwk_publisher_options_init(pwk_publisher_options *options, size_t size);

/*
 * Attaches a publisher.
 *
 * Fails with PWK_WOULD_BLOCK if all places for members are taken; PWK_UNSUPPORTED if the channel was
 * opened with read_only; PWK_OS; PWK_CORRUPT if the channel was damaged.
 */
pwk_status pwk_publisher_new(pwk_broadcast *broadcast, const pwk_publisher_options *options,
                             pwk_publisher **publisher, pwk_error *error);

/*
 * Publishes a message. All subscribers get all messages in one order.
 *
 * It waits while the ring is full and a subscriber that must see all has not received the oldest
 * message; and while another publisher is stopped in the middle of writing that message. It does not
 * wait for a process that has died or left.
 *
 * Fails with PWK_TIMED_OUT, where pwk_error_process says for whom it has waited; PWK_INTERRUPTED;
 * PWK_TOO_LONG if the message is longer than max_message, or if this process would hold more bytes of
 * blobs than blob_limit; PWK_OS, for instance with ENOSPC if there is no memory for the blob of a long
 * message; PWK_CORRUPT if the channel was damaged. Then nothing was published.
 */
pwk_status pwk_publisher_publish(pwk_publisher *publisher, const void *data, size_t len,
                                 pwk_deadline deadline, pwk_error *error);

/* As pwk_publisher_publish, with flags. `number` is the number of the message. */
pwk_status pwk_publisher_publish_message(pwk_publisher *publisher, const void *data, size_t len,
                                         uint32_t flags, pwk_deadline deadline, uint64_t *number,
                                         pwk_error *error);

/*
 * As pwk_publisher_publish_message, with blobs.
 *
 * Fails as pwk_publisher_publish; with PWK_TOO_LONG, too, if the message has more blobs than the
 * channel allows.
 */
pwk_status pwk_publisher_publish_blobs(pwk_publisher *publisher, const pwk_message *message,
                                       pwk_deadline deadline, uint64_t *number, pwk_error *error);

/*
 * Publishes a message if it need not wait, else PWK_WOULD_BLOCK. Otherwise it is as
 * pwk_publisher_publish.
 */
pwk_status pwk_publisher_try_publish(pwk_publisher *publisher, const void *data, size_t len,
                                     pwk_error *error);

/* As pwk_publisher_try_publish, with flags. `number` is the number of the message. */
pwk_status pwk_publisher_try_publish_message(pwk_publisher *publisher, const void *data,
                                             size_t len, uint32_t flags, uint64_t *number,
                                             pwk_error *error);

/* As pwk_publisher_try_publish_message, with blobs. Fails as pwk_publisher_publish_blobs. */
pwk_status pwk_publisher_try_publish_blobs(pwk_publisher *publisher, const pwk_message *message,
                                           uint64_t *number, pwk_error *error);

/*
 * Publishes `count` messages one after the other, with the same flags, and wakes the subscribers once.
 * `number` is the number of the last message, 0 if there are none. The deadline is for all together.
 * Messages of other publishers may come in between.
 *
 * Fails as pwk_publisher_publish, for the first message that was not published; pwk_error.done says
 * how many were.
 */
pwk_status pwk_publisher_publish_many(pwk_publisher *publisher, const pwk_bytes *messages,
                                      size_t count, uint32_t flags, pwk_deadline deadline,
                                      uint64_t *number, pwk_error *error);

/* As pwk_publisher_publish_many, with blobs, and with flags for each message. */
pwk_status pwk_publisher_publish_many_blobs(pwk_publisher *publisher, const pwk_message *messages,
                                            size_t count, pwk_deadline deadline, uint64_t *number,
                                            pwk_error *error);

/*
 * A descriptor for an event loop, readable while there may be room in the ring, after
 * pwk_publisher_try_publish has returned PWK_WOULD_BLOCK. It is the program's to close, and not to be
 * read from. A forked child asks for one of its own.
 *
 * Fails with PWK_OS if no descriptor is left, or no thread can be started.
 */
pwk_status pwk_publisher_doorbell(pwk_publisher *publisher, int *fd, pwk_error *error);

/* The channel that a publisher is attached to, lent until the publisher is freed; NULL for NULL. */
pwk_broadcast *pwk_publisher_broadcast(pwk_publisher *publisher);

/* Leaves the channel. Messages that were published stay in the ring. */
void pwk_publisher_free(pwk_publisher *publisher);

/* -------------------------------------------------------------------------------------------------
 * The receiving end of broadcast.
 */

/*
 * Receives the messages of a channel, one after the other. One thread at a time may use it. A child that
 * was forked may use it, as a member of its own, which goes on with the same message. It is freed with
 * pwk_subscriber_free.
 */
typedef struct pwk_subscriber pwk_subscriber;

/*
 * A message that a subscriber has received. Its bytes are lent until the next receiving call on the
 * subscriber, whether that succeeds or fails, or until the subscriber is freed.
 */
typedef struct pwk_received {
    /* The bytes. If they came in a blob, they lie in its memory, which must not be written. */
    pwk_bytes bytes;
    /* Its number. The first message of a channel has 1. */
    uint64_t number;
    /* The 32 bits that the publisher sent with it. */
    uint32_t flags;
    /* How many blobs came with it, for pwk_subscriber_blobs. */
    uint32_t blob_count;
} pwk_received;

/* With the first message that is published after the subscriber was attached. */
#define PWK_START_NOW 0
/* With the oldest message that is still there. */
#define PWK_START_OLDEST 1
/*
 * With the newest message that is there, at once: for a state rather than events. If there is none,
 * with the first that comes.
 */
#define PWK_START_LATEST 2
/* With the message after the number pwk_subscriber_options.after. */
#define PWK_START_AFTER 3

/* How a subscriber receives. */
typedef struct pwk_subscriber_options {
    /* sizeof(pwk_subscriber_options). */
    size_t size;
    /*
     * Where it begins: PWK_START_NOW, the default, PWK_START_OLDEST, PWK_START_LATEST or
     * PWK_START_AFTER.
     */
    uint32_t start;
    /*
     * Publishers wait for it, and it gets every message. By default they never wait for it, and it gets
     * PWK_LAGGED when it was too slow. One that is stopped or does not receive holds up all publishers;
     * if it dies or leaves, they go on.
     */
    bool must_see_all;
    /*
     * For PWK_START_AFTER: the number of the last message that is not wanted, to go on after a restart;
     * 0 is before the first message. If the message after it is gone, PWK_LAGGED comes first.
     */
    uint64_t after;
    /*
     * Bytes of the longest message that it receives; PWK_DEFAULT_MAX_MESSAGE by default. A longer one is
     * PWK_TOO_LONG, once. A message that fits into a cell is never too long. Copies of the blobs of a
     * message may have as many bytes together.
     */
    size_t max_message;
} pwk_subscriber_options;

/* Fills in the defaults. `size` is sizeof(pwk_subscriber_options). */
void pwk_subscriber_options_init(pwk_subscriber_options *options, size_t size);

/*
 * Attaches a subscriber.
 *
 * Fails with PWK_WOULD_BLOCK if all places for members are taken; PWK_INVALID for another `start`, and
 * if no message with the number `after` was published; PWK_OS; PWK_CORRUPT if the channel was damaged.
 * In a channel that was opened with read_only, with PWK_UNSUPPORTED for one that must see all, and if
 * the channel was made without observers.
 */
pwk_status pwk_subscriber_new(pwk_broadcast *broadcast, const pwk_subscriber_options *options,
                              pwk_subscriber **subscriber, pwk_error *error);

/*
 * Waits for the next message.
 *
 * Fails with PWK_LAGGED if messages are gone that it had not received; pwk_error.done says how many.
 * This is reported once, and the next call goes on with the oldest message that is there.
 *
 * Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: call again. With PWK_TOO_LONG if the message is longer
 * than max_message, which passes it over, or if blob_limit leaves no space for it now: then it stays.
 * With PWK_OS if no descriptor or memory is left for a blob: the message stays, so that the next call
 * can succeed. With PWK_CORRUPT if the channel was damaged, or a blob was removed, whose message is
 * passed over.
 */
pwk_status pwk_subscriber_recv(pwk_subscriber *subscriber, pwk_deadline deadline,
                               pwk_received *message, pwk_error *error);

/*
 * The next message if there is one, else PWK_WOULD_BLOCK. Otherwise it is as pwk_subscriber_recv.
 */
pwk_status pwk_subscriber_try_recv(pwk_subscriber *subscriber, pwk_received *message,
                                   pwk_error *error);

/*
 * Waits until there is a message, and receives the newest. The ones before it are passed over, and do
 * not count as missed.
 *
 * Fails as pwk_subscriber_recv, but never with PWK_LAGGED.
 */
pwk_status pwk_subscriber_recv_latest(pwk_subscriber *subscriber, pwk_deadline deadline,
                                      pwk_received *message, pwk_error *error);

/*
 * The newest message if there is one, else PWK_WOULD_BLOCK. Otherwise it is as
 * pwk_subscriber_recv_latest.
 */
pwk_status pwk_subscriber_try_recv_latest(pwk_subscriber *subscriber, pwk_received *message,
                                          pwk_error *error);

/*
 * The blobs of the message that was received last. They replace the content of `blobs`. The program may
 * keep them while it receives further messages.
 *
 * Fails with PWK_STALE if the last receiving call has failed.
 */
pwk_status pwk_subscriber_blobs(pwk_subscriber *subscriber, pwk_blobs *blobs, pwk_error *error);

/*
 * How many messages were published that it has not received; 0 for NULL. Numbers that were passed over
 * count.
 */
uint64_t pwk_subscriber_lag(pwk_subscriber *subscriber);

/*
 * A descriptor for an event loop, readable while there is something to receive. It is the program's to
 * close, and not to be read from. When it is readable, call pwk_subscriber_try_recv until that returns
 * PWK_WOULD_BLOCK. A forked child asks for one of its own.
 *
 * Fails with PWK_OS if no descriptor is left, or no thread can be started; PWK_UNSUPPORTED if the
 * channel was opened with read_only.
 */
pwk_status pwk_subscriber_doorbell(pwk_subscriber *subscriber, int *fd, pwk_error *error);

/*
 * The channel that a subscriber is attached to, lent until the subscriber is freed; NULL for NULL.
 */
pwk_broadcast *pwk_subscriber_broadcast(pwk_subscriber *subscriber);

/* Leaves the channel. Publishers no longer wait for it. */
void pwk_subscriber_free(pwk_subscriber *subscriber);

/* -------------------------------------------------------------------------------------------------
 * Module pipe: a byte pipe inside one process, without descriptors, and without system calls while
 * both sides run.
 *
 * One thread writes a stream (a document, an archive, a compressed file), another reads it, and
 * neither holds it whole. Bytes come out once and in order. There is one writer and one reader:
 *
 * - The writer finishes or is freed: the reader gets the rest, then 0 bytes, which is the end of
 *   the stream, as often as it asks.
 * - The writer closes with an error, or is freed where it must finish: the reader gets the rest,
 *   then PWK_FAILED.
 * - The reader is freed: the writer gets PWK_CLOSED, although there be space.
 * - The reader closes with an error: the writer gets PWK_FAILED.
 *
 * An end that waits learns of this at once. A forked child has a copy of the memory, and no other
 * end.
 */

/* -------------------------------------------------------------------------------------------------
 * The two ends, and how they are made.
 */

/*
 * The reading end of a pipe. One thread at a time, whatever the other end's thread does. It is
 * freed with pwk_pipe_reader_free or pwk_pipe_reader_close_with_error.
 */
typedef struct pwk_pipe_reader pwk_pipe_reader;

/*
 * The writing end of a pipe. One thread at a time, whatever the other end's thread does. It is
 * freed with pwk_pipe_writer_finish, pwk_pipe_writer_free or pwk_pipe_writer_close_with_error.
 */
typedef struct pwk_pipe_writer pwk_pipe_writer;

/* A capacity in bytes that suits most programs: the capacity of a pipe of the kernel. */
#define PWK_PIPE_CAPACITY 65536

/*
 * Makes a pipe that holds up to `capacity` bytes, rounded up to a power of two, and takes the
 * memory for them.
 *
 * Fails with PWK_INVALID if the capacity is 0 or more than half of the address space; PWK_OS with
 * ENOMEM if the memory does not suffice.
 */
pwk_status pwk_pipe_pair(size_t capacity, pwk_pipe_reader **reader, pwk_pipe_writer **writer,
                         pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * The reading end: takes bytes out, or lends them where they lie.
 */

/*
 * Waits for the first byte and takes the bytes that are there, up to `space`, to `into`. `len` is
 * set to their number; 0 is the end of the stream.
 *
 * Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: nothing was taken, call again. PWK_FAILED if the
 * writer gave up, and everything before that has been taken; pwk_pipe_reader_failure says why.
 */
pwk_status pwk_pipe_reader_recv(pwk_pipe_reader *reader, void *into, size_t space,
                                pwk_deadline deadline, size_t *len, pwk_error *error);

/*
 * Takes what is there now; PWK_WOULD_BLOCK if nothing is. It does not wait. Otherwise it is as
 * pwk_pipe_reader_recv.
 */
pwk_status pwk_pipe_reader_try_recv(pwk_pipe_reader *reader, void *into, size_t space, size_t *len,
                                    pwk_error *error);

/*
 * Takes until the `space` bytes at `into` are full. `len` is set to their number: fewer only at
 * the end of the stream.
 *
 * Fails as pwk_pipe_reader_recv. The bytes taken before lie at `into`, and pwk_error.done is their
 * number: go on behind them.
 */
pwk_status pwk_pipe_reader_recv_full(pwk_pipe_reader *reader, void *into, size_t space,
                                     pwk_deadline deadline, size_t *len, pwk_error *error);

/*
 * Takes up to and with the first byte that equals `delimiter`, or until the `space` bytes at
 * `into` are full. `len` is set to their number. Without that byte at their end, either `into` is
 * full or the stream has ended.
 *
 * Fails as pwk_pipe_reader_recv_full.
 */
pwk_status pwk_pipe_reader_recv_until(pwk_pipe_reader *reader, uint8_t delimiter, void *into,
                                      size_t space, pwk_deadline deadline, size_t *len,
                                      pwk_error *error);

/*
 * Waits until at least `min` bytes are there and lends them where they lie, in `pieces[0]` and
 * `pieces[1]`: the second is empty unless they reach round the end of the memory. It lends fewer
 * only at the end of the stream. With `min` 0 it does not wait, and lends the bytes that are
 * there.
 *
 * They are lent until the next call on this end. Meanwhile the writer may add to them, but not
 * change them.
 *
 * Fails with PWK_TOO_LONG if `min` is more than the capacity; otherwise as pwk_pipe_reader_recv.
 */
pwk_status pwk_pipe_reader_peek(pwk_pipe_reader *reader, size_t min, pwk_deadline deadline,
                                pwk_bytes *pieces, pwk_error *error);

/*
 * Consumes the first `len` bytes that pwk_pipe_reader_peek lent.
 *
 * Fails with PWK_INVALID if it lent fewer.
 */
pwk_status pwk_pipe_reader_consume(pwk_pipe_reader *reader, size_t len, pwk_error *error);

/*
 * Copies `len` bytes to a descriptor, or as many as the stream has; UINT64_MAX is everything.
 * `copied` says how many. Whether the descriptor blocks does not matter.
 *
 * Fails as pwk_pipe_reader_recv; with PWK_CLOSED if the descriptor has no reader any more; PWK_OS.
 * pwk_error.done bytes have arrived, and no other has left the pipe: the same call may be made
 * again.
 */
pwk_status pwk_pipe_reader_copy_to_fd(pwk_pipe_reader *reader, int fd, uint64_t len,
                                      pwk_deadline deadline, uint64_t *copied, pwk_error *error);

/* Whether the writer has finished or was freed; false for NULL. There may be bytes left. */
bool pwk_pipe_reader_is_closed(pwk_pipe_reader *reader);

/*
 * Writes why the writer gave up into `text`, which has space for `size` bytes with the NUL at the
 * end, and cuts it off there. Returns how long that is, without the NUL, as snprintf does; 0 if
 * the writer did not give up. There may be bytes left.
 */
size_t pwk_pipe_reader_failure(pwk_pipe_reader *reader, char *text, size_t size);

/* Bytes that can be taken now; 0 for NULL. The writer may add to them at any time. */
size_t pwk_pipe_reader_len(pwk_pipe_reader *reader);

/* Bytes that the pipe holds at most; 0 for NULL. */
size_t pwk_pipe_reader_capacity(pwk_pipe_reader *reader);

/*
 * Sets for how long this end's thread spins before it sleeps, while recent waits have ended
 * within that time: PWK_DEFAULT_SPIN_NS by default, up to 1 ms, 0 for never. NULL is allowed.
 */
void pwk_pipe_reader_set_spin(pwk_pipe_reader *reader, uint64_t ns);

/*
 * Frees this end with a reason, a string, which the writer gets by pwk_pipe_writer_failure; its
 * calls fail with PWK_FAILED. NULL is no particular reason. NULL as `reader` is allowed.
 */
void pwk_pipe_reader_close_with_error(pwk_pipe_reader *reader, const char *reason);

/* Frees this end: unread bytes are lost, and the writer's calls fail with PWK_CLOSED. */
void pwk_pipe_reader_free(pwk_pipe_reader *reader);

/* -------------------------------------------------------------------------------------------------
 * The writing end: puts bytes in, or lends the space for them.
 */

/*
 * Waits for space for the first byte and puts in as many bytes as fit. `sent` is set to their
 * number.
 *
 * Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: nothing was put in, call again. PWK_CLOSED if the
 * reader is gone; PWK_FAILED if the reader gave up, and pwk_pipe_writer_failure says why.
 */
pwk_status pwk_pipe_writer_send(pwk_pipe_writer *writer, const void *data, size_t len,
                                pwk_deadline deadline, size_t *sent, pwk_error *error);

/*
 * Puts in as many bytes as fit now; PWK_WOULD_BLOCK if the pipe is full. It does not wait.
 * Otherwise it is as pwk_pipe_writer_send.
 */
pwk_status pwk_pipe_writer_try_send(pwk_pipe_writer *writer, const void *data, size_t len,
                                    size_t *sent, pwk_error *error);

/*
 * Puts in all `len` bytes.
 *
 * Fails as pwk_pipe_writer_send. pwk_error.done says how many were put in before: go on behind
 * them.
 */
pwk_status pwk_pipe_writer_send_all(pwk_pipe_writer *writer, const void *data, size_t len,
                                    pwk_deadline deadline, pwk_error *error);

/*
 * Waits until at least `min` bytes are free and lends that space, in `pieces[0]` and `pieces[1]`:
 * the second is empty unless the space reaches round the end of the memory. With `min` 0 it does
 * not wait, and lends the free space.
 *
 * It is lent until the next call on this end, and holds old bytes. The reader does not see them
 * before pwk_pipe_writer_commit.
 *
 * Fails with PWK_TOO_LONG if `min` is more than the capacity; otherwise as pwk_pipe_writer_send.
 */
pwk_status pwk_pipe_writer_reserve(pwk_pipe_writer *writer, size_t min, pwk_deadline deadline,
                                   pwk_space *pieces, pwk_error *error);

/*
 * Puts in the first `len` bytes of the space that pwk_pipe_writer_reserve lent.
 *
 * Fails with PWK_INVALID if it lent less.
 */
pwk_status pwk_pipe_writer_commit(pwk_pipe_writer *writer, size_t len, pwk_error *error);

/*
 * Copies `len` bytes from a descriptor, or all if it has fewer; UINT64_MAX is everything. `copied`
 * is set to their number. Whether the descriptor blocks does not matter. It notices that the
 * reader is gone when it has bytes for it, not before.
 *
 * Fails as pwk_pipe_writer_send; with PWK_OS. pwk_error.done bytes are in the pipe, and no other
 * has left the descriptor: the same call may be made again.
 */
pwk_status pwk_pipe_writer_copy_from_fd(pwk_pipe_writer *writer, int fd, uint64_t len,
                                        pwk_deadline deadline, uint64_t *copied, pwk_error *error);

/* Whether the reader was freed; false for NULL. */
bool pwk_pipe_writer_is_closed(pwk_pipe_writer *writer);

/*
 * Writes why the reader gave up into `text`, as pwk_pipe_reader_failure does; returns 0 if it did
 * not.
 */
size_t pwk_pipe_writer_failure(pwk_pipe_writer *writer, char *text, size_t size);

/* Bytes that wait to be read now; 0 for NULL. The reader may take some at any time. */
size_t pwk_pipe_writer_len(pwk_pipe_writer *writer);

/* Bytes that the pipe holds at most; 0 for NULL. */
size_t pwk_pipe_writer_capacity(pwk_pipe_writer *writer);

/* As pwk_pipe_reader_set_spin. */
void pwk_pipe_writer_set_spin(pwk_pipe_writer *writer, uint64_t ns);

/*
 * From now on, pwk_pipe_writer_free is a failure: unless pwk_pipe_writer_finish has ended the
 * stream, its reader gets PWK_FAILED behind the last byte. For a producer that may leave early and
 * free everything on its way: half a document then never looks like a whole one. NULL is allowed.
 */
void pwk_pipe_writer_must_finish(pwk_pipe_writer *writer);

/*
 * Ends the stream, and frees this end in any case: the reader gets what is in the pipe and then
 * the end. Whether it takes the rest is not waited for.
 *
 * Fails with PWK_CLOSED or PWK_FAILED if the reader is gone already, and so has not got all of it.
 */
pwk_status pwk_pipe_writer_finish(pwk_pipe_writer *writer, pwk_error *error);

/*
 * Frees this end with a reason, a string: the reader gets what is in the pipe and then PWK_FAILED,
 * and the reason by pwk_pipe_reader_failure. NULL is no particular reason. NULL as `writer` is
 * allowed.
 */
void pwk_pipe_writer_close_with_error(pwk_pipe_writer *writer, const char *reason);

/*
 * Frees this end: the reader gets what is in the pipe and then the end, unless this end must
 * finish.
 */
void pwk_pipe_writer_free(pwk_pipe_writer *writer);

/* -------------------------------------------------------------------------------------------------
 * Module fd: raw descriptors, and the work that one system call leaves half done.
 *
 * What libc does in one call is left to libc. Here a call does all of it, until a deadline.
 * Descriptors may block or not, and share an open file with strangers: their flags are never
 * changed, and a deadline holds either way. Functions that never wait take none.
 *
 * A call that fails half-way says how far it got, in pwk_error.done. PWK_TIMED_OUT and
 * PWK_INTERRUPTED end a wait, and another call can do the rest. PWK_CLOSED is a pipe or socket
 * without a reader, and SIGPIPE is not raised; PWK_INVALID, with EBADF, a number that is no open
 * descriptor; PWK_OS anything else that the kernel refuses.
 */

/* -------------------------------------------------------------------------------------------------
 * Accepting many connections at once, and handling a lack of descriptors.
 *
 * Linux looks for a free descriptor before it looks for a connection. So no connection is lost if
 * descriptors have run out, but the listener stays readable, and an event loop that just tries
 * again spins. Either it stops watching the listener until a descriptor is closed, or it keeps a
 * pwk_reserve and turns the waiting connections away.
 */

/* Why accepting stopped: one of PWK_STOPPED_WOULD_BLOCK to PWK_STOPPED_FAILED. */
typedef uint32_t pwk_stopped;

/* No other connection is waiting. */
#define PWK_STOPPED_WOULD_BLOCK 1
/* As many as were asked for have been taken; there may be more. */
#define PWK_STOPPED_LIMIT 2
/*
 * No descriptor is left in this process or on this machine. The connections that wait go on
 * waiting: close something, or call pwk_reserve_shed.
 */
#define PWK_STOPPED_NO_DESCRIPTORS 3
/* Anything else, after some were taken: the next call fails with it. */
#define PWK_STOPPED_FAILED 4

/* An accepted connection. */
typedef struct pwk_connection {
    /* Its descriptor, which is the program's; it does not block. */
    int fd;
    /* How long the address is; 0 where the kernel does not say who has connected. */
    socklen_t peer_len;
    /* The address of the peer; zeros behind its end. */
    struct sockaddr_storage peer;
} pwk_connection;

/*
 * Accepts the connections that are there, up to `max`, into the array `connections`. `count`,
 * which must not be NULL, is set to their number, and `stopped` to the reason why there are not
 * more. It does not wait.
 *
 * A connection that its peer has given up meanwhile, or that a firewall forbids, counts as one of
 * `max` and is not among them. The listener should not block: one that does is polled first, and
 * if another process is quicker, the call waits for the next connection.
 *
 * Fails only if none was accepted, and for another reason than PWK_STOPPED_WOULD_BLOCK, _LIMIT and
 * _NO_DESCRIPTORS, which are no failures.
 */
pwk_status pwk_fd_accept_many(int listener, pwk_connection *connections, size_t max, size_t *count,
                              pwk_stopped *stopped, pwk_error *error);

/*
 * A descriptor that is given up when none is left, so that connections can be turned away instead
 * of left to wait. One thread at a time. It is freed with pwk_reserve_free.
 */
typedef struct pwk_reserve pwk_reserve;

/*
 * Takes a descriptor to hold.
 *
 * Fails with PWK_OS if none is left.
 */
pwk_status pwk_reserve_new(pwk_reserve **reserve, pwk_error *error);

/*
 * Whether it holds a descriptor to give up; false for NULL. If not, the next pwk_reserve_shed
 * tries to take one again.
 */
bool pwk_reserve_is_held(pwk_reserve *reserve);

/*
 * Accepts up to `max` connections and closes each at once, so that their peers learn that they
 * will not be served. `turned_away` is set to their number, and `stopped` to the reason why there
 * were not more. It does not wait. The descriptor is given up meanwhile; if another thread takes
 * it first, the reserve is not held any more.
 *
 * Fails as pwk_fd_accept_many.
 */
pwk_status pwk_reserve_shed(pwk_reserve *reserve, int listener, size_t max, size_t *turned_away,
                            pwk_stopped *stopped, pwk_error *error);

/* Frees the reserve, and closes its descriptor. */
void pwk_reserve_free(pwk_reserve *reserve);

/* -------------------------------------------------------------------------------------------------
 * Copying between any two descriptors, inside the kernel where it can.
 */

/*
 * Copies `len` bytes, or all if there are fewer; UINT64_MAX is everything. `copied` is set to
 * their number.
 *
 * Both positions move along. Either side may be a file, a pipe, a stream socket, a terminal or a
 * device, and the best that the kernel does between them is found by itself. The deadline is
 * looked at in every wait, and after every 4 MiB that needed none.
 *
 * pwk_error.done bytes have arrived when it fails, and no other has left `from`: the same call may
 * be made again. (Not so if `from` is a terminal, a device or a socket with SO_PEEK_OFF: up to
 * 4096 bytes are lost there when writing fails.) PWK_UNSUPPORTED if a side is a datagram socket;
 * PWK_INVALID if a file or pipe is both sides. No other reader may read from `from` meanwhile.
 */
pwk_status pwk_fd_copy_all(int from, int to, uint64_t len, pwk_deadline deadline, uint64_t *copied,
                           pwk_error *error);

/*
 * Sends `len` bytes of the file `from`, beginning at `offset`, or all if there are fewer. `copied`
 * is set to their number. The position of `from` stays where it is, so that many can send from one
 * file.
 *
 * Fails as pwk_fd_copy_all; with PWK_INVALID if `from` has no positions.
 */
pwk_status pwk_fd_sendfile_all(int to, int from, uint64_t offset, uint64_t len,
                               pwk_deadline deadline, uint64_t *copied, pwk_error *error);

/*
 * Moves `len` bytes, or all if there are fewer, through splice(2) alone. `copied` is set to their
 * number. One side must be a pipe.
 *
 * Fails as pwk_fd_copy_all; with PWK_INVALID if neither side is a pipe, or where the kernel cannot
 * splice, for instance into a file that is open for appending.
 */
pwk_status pwk_fd_splice_all(int from, int to, uint64_t len, pwk_deadline deadline,
                             uint64_t *copied, pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * Reading and writing all of it: records, whole files, at a position.
 */

/*
 * Reads until the `space` bytes at `into` are full or the input ends. `len` says how many there
 * are: fewer than `space` is the end. This is how records of a fixed size are read, one a call,
 * the last of them perhaps short, and then 0.
 *
 * When it fails, pwk_error.done bytes were read to `into`: go on behind them.
 */
pwk_status pwk_fd_read_full(int fd, void *into, size_t space, pwk_deadline deadline, size_t *len,
                            pwk_error *error);

/*
 * Writes all `len` bytes.
 *
 * When it fails, the first pwk_error.done bytes were written, and none of the others: go on behind
 * them.
 */
pwk_status pwk_fd_write_all(int fd, const void *data, size_t len, pwk_deadline deadline,
                            pwk_error *error);

/*
 * Appends everything from the current position to the end of file to `data`. `len` is set to the
 * number of bytes. The buffer never takes more than about twice its content.
 *
 * Fails with PWK_TOO_LONG if there are more than `max_bytes`; PWK_OS with ENOMEM if the memory
 * does not suffice. The bytes read before are in the buffer, and pwk_error.done is their number.
 */
pwk_status pwk_fd_slurp(int fd, size_t max_bytes, pwk_deadline deadline, pwk_buffer *data,
                        size_t *len, pwk_error *error);

/*
 * As pwk_fd_read_full, from `offset` on. The descriptor's own position stays.
 *
 * Fails with PWK_INVALID for a pipe or socket, which has no positions.
 */
pwk_status pwk_fd_pread_full(int fd, void *into, size_t space, uint64_t offset, size_t *len,
                             pwk_error *error);

/*
 * As pwk_fd_write_all, from `offset` on. The descriptor's own position stays. If the file was
 * opened for appending, Linux ignores `offset` and appends.
 *
 * Fails with PWK_INVALID for a pipe or socket, which has no positions.
 */
pwk_status pwk_fd_pwrite_all(int fd, const void *data, size_t len, uint64_t offset,
                             pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * Datagrams by the batch: many in one system call, whether the socket blocks or not.
 */

/* A datagram that has come, lent until the inbox receives again or is freed; or one to be sent. */
typedef struct pwk_datagram {
    /* The first byte; may be NULL if the datagram is empty. */
    const void *data;
    /* How many. */
    size_t len;
    /*
     * The sender or the receiver. NULL if the kernel does not know the sender, or for the receiver
     * that the socket is connected to.
     */
    const struct sockaddr *address;
    /* How long the address is. */
    socklen_t address_len;
    /* It was longer than its space, and its end is lost. Means nothing when it is sent. */
    bool is_cut;
} pwk_datagram;

/*
 * Space for datagrams, to be received into again and again. One thread at a time. It is freed with
 * pwk_inbox_free.
 */
typedef struct pwk_inbox pwk_inbox;

/*
 * Makes space for `max` datagrams of up to `max_bytes` bytes each; more than 64 count as 64, which
 * one system call takes. All memory is taken at once.
 *
 * Fails with PWK_INVALID if one of them is 0; PWK_OS with ENOMEM if the memory does not suffice.
 */
pwk_status pwk_inbox_new(size_t max, size_t max_bytes, pwk_inbox **inbox, pwk_error *error);

/*
 * Forgets what the inbox holds, waits for a datagram, and takes all that are there, as many as
 * fit. `count` is set to their number. Descriptors that a sender sends along are closed.
 *
 * Fails with PWK_TIMED_OUT; PWK_INTERRUPTED; PWK_OS.
 */
pwk_status pwk_inbox_recv(pwk_inbox *inbox, int socket, pwk_deadline deadline, size_t *count,
                          pwk_error *error);

/*
 * Lends one of the datagrams that the last pwk_inbox_recv has taken: `i` counts from 0, in the
 * order in which they came.
 *
 * Fails with PWK_INVALID if `i` is too large.
 */
pwk_status pwk_inbox_get(pwk_inbox *inbox, size_t i, pwk_datagram *datagram, pwk_error *error);

/* Frees the inbox, and everything that it has lent. */
void pwk_inbox_free(pwk_inbox *inbox);

/*
 * Sends each of `count` datagrams, and waits for space until the deadline.
 *
 * The first pwk_error.done have been sent when it fails, and it failed at the next one.
 * PWK_UNSUPPORTED for a stream socket; PWK_INVALID for an address that is too short or too long
 * for its family.
 */
pwk_status pwk_fd_send_many(int socket, const pwk_datagram *datagrams, size_t count,
                            pwk_deadline deadline, pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * Temporary names in a folder.
 */

/*
 * Creates a file under a new name: every X at the end of `path`, six of them at least, is replaced
 * by a random letter or digit. A relative path starts from the folder that is open as `folder`;
 * AT_FDCWD is the current one. `fd` is open for reading and writing; the file's mode is 0600.
 *
 * Fails with PWK_INVALID if `path` does not end with six X; PWK_OS. `path` is as it was then.
 */
pwk_status pwk_fd_mkstemp(int folder, char *path, int *fd, pwk_error *error);

/*
 * Replaces the X at the end of `path` as pwk_fd_mkstemp does, so that nothing has that name.
 * Nothing is created: another process may take the name meanwhile.
 *
 * Fails as pwk_fd_mkstemp.
 */
pwk_status pwk_fd_mktemp(int folder, char *path, pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * Many descriptors in one call: waiting for some, closing a range of them.
 */

/*
 * As poll(2), until a deadline: waits until one of `count` descriptors is ready for its events.
 * `ready` is set to the number of them, 0 once the deadline has passed. With `count` 0 it is a
 * sleep.
 *
 * Fails with PWK_INTERRUPTED; PWK_OS. A descriptor that is not open is ready, with POLLNVAL; one
 * with a negative number is left out.
 */
pwk_status pwk_fd_poll(struct pollfd *fds, size_t count, pwk_deadline deadline, size_t *ready,
                       pwk_error *error);

/*
 * Closes every open descriptor from `first` to `last`; UINT32_MAX is the last there can be. None
 * of them may be one that a handle of this library holds or was lent.
 *
 * Fails with PWK_INVALID if `first` is larger than `last`; PWK_UNSUPPORTED where the kernel or a
 * sandbox does not know the call.
 */
pwk_status pwk_fd_close_range(uint32_t first, uint32_t last, pwk_error *error);

/*
 * Has every open descriptor from `first` to `last` closed when another program is executed.
 *
 * Fails as pwk_fd_close_range. Linux 5.11 was the first to know how.
 */
pwk_status pwk_fd_close_range_on_exec(uint32_t first, uint32_t last, pwk_error *error);

/* -------------------------------------------------------------------------------------------------
 * Functions that only bindings of other languages need. A program in C has no use for them.
 */

/*
 * The index of the slot of a ticket: below pwk_geometry.slots, if it is a ticket of that segment.
 */
uint32_t pwk_ticket_slot(uint64_t ticket);

#ifdef __cplusplus
}
#endif

#endif
