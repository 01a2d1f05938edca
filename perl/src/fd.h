/*
 * Pipework::FD: the functions of IO::FD, and some more. Those that libc does in one call return as
 * Perl's own do, with EINTR after a signal. Those that do all of something call the library.
 *
 * A descriptor is looked at before any other argument is converted. Functions
 * return PWP_FD_UNDEF, or NULL, for undef, and have set $!.
 */
#ifndef PWP_FD_H
#define PWP_FD_H

#include "pwperl.h"

#define PWP_FD_UNDEF IV_MIN

/*
 * The body of XSUBs that hold their arguments and return a number, in the scalar that Perl
 * keeps for it, or undef.
 */
#define PWP_FD_RETURN(call) STMT_START { \
    pwp_hold(aTHX_ ax, items); \
    PWP_FD_RETURN_HELD(call); \
} STMT_END

/* The same where the arguments are held, or need not be. */
#define PWP_FD_RETURN_HELD(call) STMT_START { \
    dXSTARG; \
    IV returned = (call); \
    if (returned == PWP_FD_UNDEF) XSRETURN_UNDEF; \
    XSprePUSH; \
    PUSHi(returned); \
    XSRETURN(1); \
} STMT_END

/* As PWP_FD_RETURN, for a scalar. */
#define PWP_FD_RETURN_SV(call) STMT_START { \
    SV *returned; \
    pwp_hold(aTHX_ ax, items); \
    returned = (call); \
    if (!returned) XSRETURN_UNDEF; \
    ST(0) = returned; \
    XSRETURN(1); \
} STMT_END

/* Under -T, what was read from outside is tainted; after set-magic, which takes the mark away. */
#define PWP_FD_FROM_OUTSIDE(sv) STMT_START { \
    if (UNLIKELY(TAINTING_get)) SvTAINTED_on(sv); \
} STMT_END

/* ---------------------------------------------------------------- fd.c: descriptors */

/*
 * The descriptor that an argument is: an integer, also one in a string. One that does not fit is
 * -1, which the kernel refuses. False, after a warning and with EBADF, for anything else.
 */
bool pwp_fd_number(pTHX_ SV *argument, const char *name, int *fd);

/* The same of a fetched one, without the warning and EBADF. */
bool pwp_fd_is_number(pTHX_ SV *fetched, int *fd);

/* The bytes of an argument, held; undef is "", with Perl's warning. */
pwk_bytes pwp_fd_bytes(pTHX_ SV *argument, const char *name);

/* A path as Perl's own functions see it. NULL, with ENOENT, if it contains a NUL. */
const char *pwp_fd_path(pTHX_ SV *argument);

/*
 * A descriptor that was just made, close-on-exec. The mark comes off where $^F says so, unless
 * `asked`: the program has asked for it by name. PWP_FD_UNDEF for -1.
 */
IV pwp_fd_made(pTHX_ int fd, bool asked);

/*
 * Assigns descriptors that were just made; the second is -1 if there is one alone. One whose
 * assignment dies, as that to $1 does, is closed.
 */
void pwp_fd_give(pTHX_ SV *one, SV *other, int fds[2]);

/* Closes two descriptors, but for -1. */
void pwp_fd_close_both(pTHX_ void *fds);

/* The address of `address` as a mortal string. */
SV *pwp_fd_address(pTHX_ const struct sockaddr_storage *address, socklen_t len);

IV pwp_fd_dup(pTHX_ SV *fd);
IV pwp_fd_dup2(pTHX_ SV *fd, SV *number);
IV pwp_fd_close(pTHX_ SV *fd);
IV pwp_fd_pipe(pTHX_ SV *read_end, SV *write_end);
IV pwp_fd_seek(pTHX_ SV *fd, SV *offset, SV *whence);
IV pwp_fd_fcntl(pTHX_ SV *fd, SV *command, SV *argument);
IV pwp_fd_ioctl(pTHX_ SV *fd, SV *request, SV *argument);

/* ---------------------------------------------------------------- fd_file.c: files */

IV pwp_fd_sysopen(pTHX_ SV *fd, SV *path, SV *flags, SV *mode);
IV pwp_fd_open(pTHX_ SV *path, SV *flags, SV *mode);
IV pwp_fd_openat(pTHX_ SV *folder, SV *path, SV *flags, SV *mode);
IV pwp_fd_mkfifo(pTHX_ SV *path, SV *mode);
IV pwp_fd_mkfifoat(pTHX_ SV *folder, SV *path, SV *mode);

/* False if it fails. */
bool pwp_fd_stat(pTHX_ SV *target, bool follow, struct stat *status);

/* The path that a template became. `fd` is NULL if no file is to be made. Croaks if it fails. */
SV *pwp_fd_temporary(pTHX_ SV *template, IV *fd);

/* ---------------------------------------------------------------- fd_socket.c: sockets */

IV pwp_fd_socket(pTHX_ SV *fd, SV *family, SV *type, SV *protocol);
IV pwp_fd_socketpair(pTHX_ SV *one, SV *other, SV *family, SV *type, SV *protocol);
IV pwp_fd_bind(pTHX_ SV *fd, SV *address);
IV pwp_fd_connect(pTHX_ SV *fd, SV *address);
IV pwp_fd_listen(pTHX_ SV *fd, SV *backlog);
IV pwp_fd_shutdown(pTHX_ SV *fd, SV *how);
IV pwp_fd_sockatmark(pTHX_ SV *fd);
/* `flags` is NULL for accept. */
SV *pwp_fd_accept(pTHX_ SV *fd, SV *listener, SV *flags);
SV *pwp_fd_name(pTHX_ SV *fd, bool of_peer);
SV *pwp_fd_getsockopt(pTHX_ SV *fd, SV *level, SV *option);
IV pwp_fd_setsockopt(pTHX_ SV *fd, SV *level, SV *option, SV *value);

/* ---------------------------------------------------------------- fd_bytes.c: bytes */

/*
 * Whether sysread and syswrite run no Perl code when they look at these, which then need not be
 * held. Those that were not given are NULL.
 */
bool pwp_fd_are_plain(SV *fd, SV *data, SV *len, SV *offset);

/* `offset` is NULL if it was not given. */
IV pwp_fd_read(pTHX_ SV *fd, SV *buffer, SV *len, SV *offset);
IV pwp_fd_pread(pTHX_ SV *fd, SV *buffer, SV *len, SV *position);
IV pwp_fd_write(pTHX_ SV *fd, SV *data, SV *len, SV *offset);
IV pwp_fd_pwrite(pTHX_ SV *fd, SV *data, SV *len, SV *position);
SV *pwp_fd_recv(pTHX_ SV *fd, SV *buffer, SV *len, SV *flags);
IV pwp_fd_send(pTHX_ SV *fd, SV *data, SV *flags, SV *to);
IV pwp_fd_sendfile(pTHX_ SV *socket, SV *source, SV *len, SV *offset);

/* ---------------------------------------------------------------- fd_wait.c: waits */

/* A signal handler ends it, with any `$secs`, with EINTR, as it ends poll(2). */
IV pwp_fd_poll(pTHX_ SV *list, SV *seconds);

/* All of it, or a record as `$/` defines it; NULL at the end, and with $! if it fails. */
SV *pwp_fd_readline(pTHX_ SV *fd);

/* All records, as a mortal array; NULL if it fails. */
AV *pwp_fd_records(pTHX_ SV *fd);

/* `max` and `seconds` may be NULL. Everything up to the end of file, perhaps "". */
SV *pwp_fd_slurp(pTHX_ SV *fd, SV *max, SV *seconds);

/* ---------------------------------------------------------------- fd_whole.c: all of it */

/*
 * The return value of a call that had got as far as `done`; if it failed, remembers the error, and how far
 * in $Pipework::FD::done.
 */
IV pwp_fd_ended(pTHX_ pwk_status status, pwk_error *error, uint64_t done);

/* `len` and `seconds` may be NULL: everything, for ever. */
IV pwp_fd_copy_all(pTHX_ SV *from, SV *to, SV *len, SV *seconds, bool splice);
IV pwp_fd_sendfile_all(pTHX_ SV *socket, SV *source, SV *len, SV *offset, SV *seconds);
/* `position` is NULL for where the descriptor is. Those at a position take no seconds. */
IV pwp_fd_read_full(pTHX_ SV *fd, SV *buffer, SV *len, SV *position, SV *seconds);
IV pwp_fd_write_all(pTHX_ SV *fd, SV *data, SV *position, SV *seconds);
IV pwp_fd_close_range(pTHX_ SV *first, SV *last, SV *on_exec);

/* ---------------------------------------------------------------- fd_batch.c: many at once */

/* Why it stopped, in words; NULL if `listener` is none. */
const char *pwp_fd_accept_many(pTHX_ SV *listener, SV *max, AV *fds, AV *peers);
/* $! says why it stopped, also after success. */
IV pwp_fd_accept_multiple(pTHX_ SV *fds, SV *peers, SV *listener);
IV pwp_fd_send_many(pTHX_ SV *socket, SV *list, SV *seconds);

extern const pwp_class pwp_fd_reserve, pwp_fd_inbox;
SV *pwp_fd_reserve_new(pTHX_ SV *class);
IV pwp_fd_reserve_shed(pTHX_ SV *self, SV *listener, SV *max);
SV *pwp_fd_inbox_new(pTHX_ SV *class, SV *max, SV *max_bytes);
IV pwp_fd_inbox_recv(pTHX_ SV *self, SV *socket, SV *seconds);
/* Lends the datagram; false if `i` is too large. */
bool pwp_fd_inbox_get(pTHX_ SV *self, SV *i, pwk_datagram *datagram);

#endif
