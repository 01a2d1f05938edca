/*
 * Pipework::Pipe: the ends of a byte pipe inside the process, as Perl objects.
 *
 * A thread that is started gets a copy of each end: the same end, which is closed when its last
 * copy is. One thread at a time may use it; a second one gets an exception.
 */
#ifndef PWP_PIPE_H
#define PWP_PIPE_H

#include "pwperl.h"

/* An end, which threads may have copies of. */
typedef struct pwp_pipe_end {
    /* One of them, until the end is closed. */
    pwk_pipe_reader *reader;
    pwk_pipe_writer *writer;
    /* Which end it was made as. */
    bool reads;
    /* Bytes that were taken from the pipe and not yet asked for: held[at] to held[len - 1]. */
    char *held;
    size_t at, len, space;
    /* The number asked for so far. */
    uint64_t taken;
    /* Objects that have it open; threads that are in a call, and the same. */
    unsigned copies, holds;
    /* The interpreter that is in a call, and how deep: a signal handler may call again. */
    void *user;
    unsigned depth;
} pwp_pipe_end;

/* For the ends of XSUBs: the return value of a call that uses an end meanwhile. */
#define PWP_PIPE_RETURN(call) STMT_START { \
    IV returned; \
    ENTER; \
    returned = (call); \
    LEAVE; \
    if (returned < 0) XSRETURN_UNDEF; \
    XSRETURN_IV(returned); \
} STMT_END

#define PWP_PIPE_RETURN_SV(call) STMT_START { \
    SV *returned; \
    ENTER; \
    returned = (call); \
    LEAVE; \
    if (!returned) XSRETURN_UNDEF; \
    ST(0) = returned; \
    XSRETURN(1); \
} STMT_END

/* ---------------------------------------------------------------- pipe.c: ends */

extern const pwp_class pwp_pipe;

/* Makes a pipe of two objects. Croaks if it cannot. Here and below, NULL means not given. */
void pwp_pipe_make(pTHX_ SV *reader, SV *writer, SV *capacity);

/*
 * The end of the object, which is this thread's until the scope is left. NULL, with EBADF, if it
 * is closed. Croaks if it is not that end, and if another thread is using it.
 */
pwp_pipe_end *pwp_pipe_use(pTHX_ SV *self, bool reads);

/* Drops the first bytes that it holds: they have been asked for. */
void pwp_pipe_drop(pwp_pipe_end *end, size_t len);

/* Whether the end is open still, in an attempt of a wait. If not, it fills in the error. */
bool pwp_pipe_is_open(pTHX_ SV *self, const pwp_pipe_end *end, pwk_error *error);

/* Whether it could be closed; if this was the last copy, whether all is well at the other end. */
bool pwp_pipe_close(pTHX_ SV *self);
bool pwp_pipe_close_with_error(pTHX_ SV *self, SV *reason);

/* Why the other end gave up; NULL if it did not. */
SV *pwp_pipe_reason(pTHX_ SV *self);

typedef enum { PWP_PIPE_BUFFERED, PWP_PIPE_CAPACITY, PWP_PIPE_IS_CLOSED } pwp_pipe_fact;
/* -1 if it is closed. */
IV pwp_pipe_ask(pTHX_ SV *self, pwp_pipe_fact fact);

/* ---------------------------------------------------------------- pipe_bytes.c: reading, writing */

/* Up to `max` bytes, as many as are there: "" at the end, NULL if it fails. */
SV *pwp_pipe_recv(pTHX_ SV *self, SV *max, SV *seconds);

/* Into a buffer at an offset, as sysread does; all of them as read does. -1 if it fails. */
IV pwp_pipe_read(pTHX_ SV *self, SV *buffer, SV *len, SV *offset, bool all);

/* A line, a record, a paragraph or all of it, as `$/` says. NULL at the end, and if it fails. */
SV *pwp_pipe_readline(pTHX_ SV *self);

/* Waits until it knows whether more bytes come. */
bool pwp_pipe_eof(pTHX_ SV *self);

/* All of the bytes; -1 if it fails. */
IV pwp_pipe_send(pTHX_ SV *self, SV *data, SV *seconds);

/* How many bytes; -1 if it fails. */
IV pwp_pipe_copy(pTHX_ SV *self, SV *fd, SV *len, SV *seconds, bool reads);

/*
 * Remembers a failure, with the reason if the other end gave up, and sets $Pipework::Pipe::done to
 * how far it had got.
 */
void pwp_pipe_failed(pTHX_ const pwp_pipe_end *end, pwk_error *error, uint64_t done);

#endif
