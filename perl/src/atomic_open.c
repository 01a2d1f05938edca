/* The ends behind an object of Pipework::Atomic: options, opening, settings. */
#include "atomic.h"

#include <stdlib.h>

/* ---------------------------------------------------------------- options */

bool pwp_atomic_asked(pTHX_ I32 ax, I32 items, const char *name) {
    bool asked = FALSE;
    I32 i;
    for (i = 1; i + 1 < items; i += 2) {
        SV *key = pwp_fetch(aTHX_ ST(i));
        SV *value = pwp_fetch(aTHX_ ST(i + 1));
        if (strEQ(SvPV_nomg_nolen(key), name)) asked = SvTRUE_nomg(value);
    }
    return asked;
}

static size_t bytes_or(pTHX_ SV *wanted, size_t otherwise) {
    return SvOK(wanted) ? SvUV_nomg(wanted) : otherwise;
}

void pwp_atomic_options(pTHX_ I32 ax, I32 items, pwk_atomic_options *options) {
    NV spin;
    pwk_atomic_options_init(options, sizeof *options);
    if (items != 6) croak("Pipework::Atomic: six options are expected");
    options->mixed = SvTRUE(ST(0));
    options->strict = SvTRUE(ST(1));
    options->max_message = bytes_or(aTHX_ ST(2), options->max_message);
    options->max_unfinished = bytes_or(aTHX_ ST(3), options->max_unfinished);
    options->read_size = bytes_or(aTHX_ ST(4), options->read_size);
    spin = SvOK(ST(5)) ? SvNV(ST(5)) : -1;
    if (spin >= 0) options->spin_ns = spin < 1 ? (uint64_t)(spin * 1e9) : 1000000000;
    options->max_pending = SIZE_MAX;
}

/* ---------------------------------------------------------------- opening */

static void is_set(pwp_atomic *end, const pwk_atomic_options *options) {
    end->is_mixed = options->mixed;
    end->read_blocks = !options->mixed;
}

void pwp_atomic_read_from(pTHX_ SV *self, int fd, const pwk_atomic_options *options) {
    pwp_atomic *end = pwp_atomic_state(aTHX_ self);
    pwk_error error;
    if (pwk_atomic_reader_from_fd(fd, PWK_FD_LEND, options, &end->reader, &error) != PWK_OK) {
        pwp_throw(aTHX_ &error);
    }
    end->read_fd = fd;
    end->read_file = pwp_atomic_file(fd);
    is_set(end, options);
}

void pwp_atomic_write_to(pTHX_ SV *self, int fd, const pwk_atomic_options *options) {
    pwp_atomic *end = pwp_atomic_state(aTHX_ self);
    pwk_error error;
    if (pwk_atomic_writer_from_fd(fd, PWK_FD_LEND, options, &end->writer, &error) != PWK_OK) {
        pwp_throw(aTHX_ &error);
    }
    end->write_fd = fd;
    end->write_file = pwp_atomic_file(fd);
    is_set(end, options);
}

int pwp_atomic_read_fifo(pTHX_ SV *self, pwp_atomic_fifo open, const char *path,
                         const pwk_atomic_options *options) {
    pwp_atomic *end = pwp_atomic_state(aTHX_ self);
    pwk_error error;
    if (open(path, options, &end->reader, &error) != PWK_OK) pwp_throw(aTHX_ &error);
    is_set(end, options);
    return pwk_atomic_reader_fd(end->reader);
}

int pwp_atomic_read_with(pTHX_ SV *self, SV *other) {
    pwp_atomic *from = pwp_atomic_reading(aTHX_ &other);
    pwp_atomic *end = pwp_atomic_state(aTHX_ self);
    pwk_error error;
    if (pwk_atomic_reader_clone(from->reader, &end->reader, &error) != PWK_OK) pwp_throw(aTHX_ &error);
    end->is_mixed = from->is_mixed;
    end->is_compressed = from->is_compressed;
    return pwk_atomic_reader_fd(end->reader);
}

void pwp_atomic_lend(pTHX_ SV *self, int fd) {
    pwp_atomic *end = pwp_atomic_state(aTHX_ self);
    end->read_fd = fd;
    end->read_file = pwp_atomic_file(fd);
}

typedef struct opening {
    const char *path;
    pwk_atomic_writer *writer;
} opening;

static pwk_status open_attempt(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    opening *opening = arguments;
    PERL_UNUSED_CONTEXT;
    return pwk_atomic_writer_open_fifo(opening->path, NULL, until, &opening->writer, error);
}

/* The library opens a FIFO as a signal may interrupt it, and follows no symbolic link. */
int pwp_atomic_open_fifo(pTHX_ const char *path) {
    opening opening = {NULL, NULL};
    char *followed = realpath(path, NULL);
    pwk_error error;
    int fd;
    if (!followed) return -1;
    opening.path = SvPVX(sv_2mortal(newSVpv(followed, 0)));
    free(followed);
    if (pwp_wait(aTHX_ NULL, open_attempt, &opening, PWK_NEVER, &error) != PWK_OK) {
        pwp_failed(aTHX_ &error);
        return -1;
    }
    fd = fcntl(pwk_atomic_writer_fd(opening.writer), F_DUPFD_CLOEXEC, 0);
    if (fd >= 0 && fd <= PL_maxsysfd) fcntl(fd, F_SETFD, 0);
    {
        dSAVE_ERRNO;
        pwk_atomic_writer_free(opening.writer);
        RESTORE_ERRNO;
    }
    return fd;
}

/* ---------------------------------------------------------------- setting */

void pwp_atomic_set_mixed(pTHX_ SV *self) {
    pwk_error error;
    pwp_atomic *end;
    self = pwp_pin(aTHX_ self);
    pwp_atomic_flush(aTHX_ self, TRUE);
    end = pwp_atomic_still(aTHX_ self);
    if (end->writer && pwk_atomic_writer_set_mixed(end->writer, true, &error) != PWK_OK) {
        pwp_throw(aTHX_ &error);
    }
    if (end->reader) {
        if (!end->is_mixed && pwk_atomic_reader_set_mixed(end->reader, true, &error) != PWK_OK) {
            pwp_throw(aTHX_ &error);
        }
        end->read_blocks = FALSE;
    }
    end->is_mixed = TRUE;
    (void)hv_stores((HV *)SvRV(self), "mixed_data_mode", newSViv(1));
}

void pwp_atomic_set_zstd(pTHX_ SV *self, const pwk_atomic_options *options) {
    pwp_atomic *end = pwp_atomic_still(aTHX_ self);
    pwk_error error;
    if (end->reader && pwk_atomic_reader_set_zstd(end->reader, options, &error) != PWK_OK) {
        pwp_throw(aTHX_ &error);
    }
    if (end->writer && pwk_atomic_writer_set_zstd(end->writer, options, &error) != PWK_OK) {
        pwp_throw(aTHX_ &error);
    }
    end->is_compressed = options != NULL;
    end->zstd_is_due = FALSE;
}

static pwk_status capacity(pwp_atomic *end, size_t bytes, bool or_max, size_t *now,
                           pwk_error *error) {
    if (end->reader) {
        if (!bytes) return pwk_atomic_reader_capacity(end->reader, now, error);
        if (or_max) return pwk_atomic_reader_set_capacity_or_max(end->reader, bytes, now, error);
        return pwk_atomic_reader_set_capacity(end->reader, bytes, now, error);
    }
    if (!bytes) return pwk_atomic_writer_capacity(end->writer, now, error);
    if (or_max) return pwk_atomic_writer_set_capacity_or_max(end->writer, bytes, now, error);
    return pwk_atomic_writer_set_capacity(end->writer, bytes, now, error);
}

size_t pwp_atomic_capacity(pTHX_ SV *self, size_t bytes, bool or_max, pwk_error *error) {
    pwp_atomic *end = pwp_atomic_still(aTHX_ self);
    size_t now;
    return capacity(end, bytes, or_max, &now, error) == PWK_OK ? now : 0;
}
