/*
 * Pipework::Atomic: the state behind an object, and the work of its methods.
 *
 * The object is a hash. Its Perl handles, under `rh` and `wh`, own the descriptors, and the ends of
 * the library borrow the numbers. So each call first checks that the handle is still open on its
 * number; if not, the end counts as closed. The number may belong to another file by then. To check
 * that takes a system call, which is made only where it costs little beside what follows.
 */
#ifndef PWP_ATOMIC_H
#define PWP_ATOMIC_H

#include "pwperl.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/types.h>

/* ---------------------------------------------------------------- atomic.c: objects */

/* Which file a number stood for. */
typedef struct pwp_file {
    dev_t device;
    ino_t inode;
} pwp_file;

typedef struct pwp_atomic {
    /* NULL: the object has no such end, or it is closed. */
    pwk_atomic_reader *reader;
    pwk_atomic_writer *writer;
    /* The numbers of the Perl handles. */
    int read_fd;
    int write_fd;
    pwp_file read_file;
    pwp_file write_file;
    /* The number was closed under the end. */
    bool read_is_cut;
    bool write_is_cut;
    /* The number belongs to another file, pending bytes are lost, and no call has said so yet. */
    bool is_unsaid;
    /* Something may be pending. */
    bool may_pend;
    /* The last look found nothing, so the next one reads from the pipe. */
    bool is_idle;
    bool read_blocks;
    bool write_blocks;
    bool is_mixed;
    bool is_compressed;
    /* The file with the dictionary must be read before the next message. */
    bool zstd_is_due;
    /* A message was lost, so a mixed stream ends with an exception. */
    bool has_lost;
    /* The report of the last loss; its kind is 0 if nothing was lost. */
    pwk_item torn;
} pwp_atomic;

/* Makes an object of the hash that `self` refers to. It has no ends yet. */
pwp_atomic *pwp_atomic_begin(pTHX_ SV *self);

/* The state behind an object. Croaks if it is none, and if it was destroyed. */
pwp_atomic *pwp_atomic_state(pTHX_ SV *self);

/*
 * The same, after a look at the handle to read from, and at its file if the reader is idle. Croaks
 * "Not a read handle". If it must read the dictionary, which Perl code does, it pins `self`.
 */
pwp_atomic *pwp_atomic_reading(pTHX_ SV **self);

/* The same, after a look at the handle to write to. Croaks "Cannot call write on a pipe reader". */
pwp_atomic *pwp_atomic_writing(pTHX_ SV **self);

/*
 * The same for a call that has begun: NULL behind `reader` or `writer` if a signal handler has
 * closed the end in the meantime. Nothing that is pending goes into another file.
 */
pwp_atomic *pwp_atomic_still(pTHX_ SV *self);

/* The same before a wait: the next bytes must not be those of another file. */
pwp_atomic *pwp_atomic_still_reading(pTHX_ SV *self);

/* Remembers which file a number belongs to. */
pwp_file pwp_atomic_file(int fd);

/* The value under a key of the object's hash. */
SV *pwp_atomic_value(pTHX_ SV *self, const char *key);

/* The end whose flag is asked for, or set. */
enum { PWP_BOTH_ENDS = 0, PWP_READING_END = 1, PWP_WRITING_END = 2 };

/* Whether it blocks: 1 or 0, and -1 if the object has no such end, or the two differ. */
int pwp_atomic_blocks(const pwp_atomic *end, int which);
void pwp_atomic_set_blocks(pwp_atomic *end, int which, bool blocks);

/* Whether it is an object that was not destroyed. */
bool pwp_atomic_is_whole(pTHX_ SV *self);

/* Destroys the object, if it is one. Drops pending messages. */
void pwp_atomic_destroy(pTHX_ SV *self);

/* Gives up an end. Drops pending messages. */
void pwp_atomic_drop_reader(pwp_atomic *end);
void pwp_atomic_drop_writer(pwp_atomic *end);

/* ---------------------------------------------------------------- atomic_open.c: ends */

/* Whether the option of this name is true, of those behind `self` on the stack. */
bool pwp_atomic_asked(pTHX_ I32 ax, I32 items, const char *name);

/*
 * Options of a constructor, on the stack from `ax` on: mixed_data_mode, strict, max_message,
 * max_unfinished, read_size, spin. An undefined one has its default.
 */
void pwp_atomic_options(pTHX_ I32 ax, I32 items, pwk_atomic_options *options);

/* Reads from a number that belongs to the object's Perl handle, or writes to it. */
void pwp_atomic_read_from(pTHX_ SV *self, int fd, const pwk_atomic_options *options);
void pwp_atomic_write_to(pTHX_ SV *self, int fd, const pwk_atomic_options *options);

/* pwk_atomic_reader_open_fifo or pwk_atomic_reader_listen_fifo. */
typedef pwk_status (*pwp_atomic_fifo)(const char *path, const pwk_atomic_options *options,
                                      pwk_atomic_reader **reader, pwk_error *error);

/*
 * Reads from a FIFO by a descriptor of the library's own; from the same pipe as another object;
 * both return that descriptor, lent. The object's handle is a duplicate of it: pass its number to
 * pwp_atomic_lend.
 */
int pwp_atomic_read_fifo(pTHX_ SV *self, pwp_atomic_fifo open, const char *path,
                         const pwk_atomic_options *options);
int pwp_atomic_read_with(pTHX_ SV *self, SV *other);
void pwp_atomic_lend(pTHX_ SV *self, int fd);

/*
 * Waits until the FIFO has a reader, and opens it for writing: a descriptor, or -1 and $!. It is
 * close-on-exec as $^F says.
 */
int pwp_atomic_open_fifo(pTHX_ const char *path);

/* Switches both ends to mixed mode, and sets the hash; pending bytes are written first. */
void pwp_atomic_set_mixed(pTHX_ SV *self);

/* How both ends compress from now on; NULL: not at all. */
void pwp_atomic_set_zstd(pTHX_ SV *self, const pwk_atomic_options *options);

/*
 * Sets the capacity, `or_max` to the largest that is allowed if that is less; 0 only asks. Returns
 * the capacity; 0, and fills in the error, if it is refused.
 */
size_t pwp_atomic_capacity(pTHX_ SV *self, size_t bytes, bool or_max, pwk_error *error);

/* ---------------------------------------------------------------- atomic_write.c: writing */

/* The work of write_message, write_burst and fits_in_burst, and their results. They croak. */
uint32_t pwp_atomic_write_message(pTHX_ SV *self, SV *message);
bool pwp_atomic_write_burst(pTHX_ SV *self, SV *burst);
bool pwp_atomic_fits_in_burst(pTHX_ SV *self, SV *burst, size_t *in_pipe);

/* Writes `count` messages together. */
void pwp_atomic_send_many(pTHX_ SV *self, SV **messages, size_t count);

/* Writes pending messages; waits for space if the writer blocks, or if `waits`. Croaks. */
void pwp_atomic_flush(pTHX_ SV *self, bool waits);

/* Writes pending messages, and waits for space, before the end is closed; false and $! if it cannot. */
bool pwp_atomic_finish(pTHX_ SV *self);

/* ---------------------------------------------------------------- atomic_read.c: reading */

/* A call that reads: its request and its result. */
typedef struct pwp_reading {
    SV *self;
    /* Lines and bursts, too. */
    bool any_item;
    /* The beginning of a line is worth coming back for. */
    bool peeks;
    /* It waits until `deadline`, even if the object's flag says otherwise. */
    bool waits;
    pwk_deadline deadline;
    /* The item, lent until the next call or until Perl code runs. */
    pwk_item item;
} pwp_reading;

/*
 * The next message or item, in the way of the original. False if none is there now, or at the end.
 * Reports losses on the way. Croaks.
 */
bool pwp_atomic_next(pTHX_ pwp_reading *reading);

/* The same, in our own way: a loss is an item or an exception, and so is everything else. */
void pwp_atomic_must_next(pTHX_ pwp_reading *reading);

/* The beginning of a line, as a mortal; NULL if no line has begun. */
SV *pwp_atomic_peek(pTHX_ SV *self);

bool pwp_atomic_eof(pTHX_ SV *self);

/* How many bytes it has read. */
size_t pwp_atomic_fill(pTHX_ SV *self);

/*
 * An item as a mortal reference to a hash: the result of read_message with `debug`; the result of next_item
 * or the report of a loss.
 */
SV *pwp_atomic_debug(pTHX_ const pwk_item *item);
SV *pwp_atomic_item(pTHX_ const pwk_item *item);
SV *pwp_atomic_report(pTHX_ const pwk_item *torn);

/* Mortals: the data; the compressed data, or NULL; the type; "pid:tid". */
SV *pwp_atomic_data(pTHX_ const pwk_item *item);
SV *pwp_atomic_compressed(pTHX_ const pwk_item *item);
SV *pwp_atomic_type(pTHX_ const pwk_item *item);
SV *pwp_atomic_key(pTHX_ pwk_key key);

#endif
