/* The state behind an object of Pipework::Atomic, and whether its handles are still open. */
#include "atomic.h"

#include <sys/stat.h>

void pwp_atomic_drop_reader(pwp_atomic *end) {
    pwk_atomic_reader_free(end->reader);
    end->reader = NULL;
}

void pwp_atomic_drop_writer(pwp_atomic *end) {
    pwk_atomic_writer_discard(end->writer);
    pwk_atomic_writer_free(end->writer);
    end->writer = NULL;
}

pwp_file pwp_atomic_file(int fd) {
    pwp_file file = {0, 0};
    struct stat now;
    if (fstat(fd, &now) == 0) {
        file.device = now.st_dev;
        file.inode = now.st_ino;
    }
    return file;
}

static bool is_file(int fd, const pwp_file *file) {
    struct stat now;
    return fstat(fd, &now) == 0 && now.st_dev == file->device && now.st_ino == file->inode;
}

/* Whether pending messages would go into another file. */
static bool misses(pwp_atomic *end) {
    if (end->may_pend) end->may_pend = pwk_atomic_writer_pending(end->writer) > 0;
    return end->may_pend && !is_file(end->write_fd, &end->write_file);
}

/*
 * An object that went without its DESTROY, as one of a subclass may, has its handles still: they
 * are freed later. But the program may have closed them, and opened something else.
 */
static void release(pTHX_ void *state) {
    pwp_atomic *end = state;
    pwp_context *context = pwp_get_context(aTHX);
    if (misses(end)) pwk_atomic_writer_discard(end->writer);
    pwk_atomic_reader_free(end->reader);
    /* A signal must not end the write of pending bytes. */
    context->is_freeing = true;
    pwk_atomic_writer_free(end->writer);
    context->is_freeing = false;
    Safefree(end);
}

/* In a new thread: readers that share a buffer, and a writer with a key of its own. */
static void *share(pTHX_ void *state) {
    const pwp_atomic *from = state;
    pwp_atomic *end;
    PERL_UNUSED_CONTEXT;
    Newx(end, 1, pwp_atomic);
    *end = *from;
    end->reader = NULL;
    end->writer = NULL;
    /* Without a descriptor for it, the end is a closed one there. */
    if (from->reader) (void)pwk_atomic_reader_clone(from->reader, &end->reader, NULL);
    if (from->writer) (void)pwk_atomic_writer_clone(from->writer, &end->writer, NULL);
    return end;
}

static const pwp_class atomic = {PWP_VTABLE, "Pipework::Atomic", release, share};

pwp_atomic *pwp_atomic_begin(pTHX_ SV *self) {
    pwp_atomic *end;
    if (!SvROK(self) || SvTYPE(SvRV(self)) != SVt_PVHV || pwp_find(aTHX_ self, &atomic)) {
        croak("Expected a hash that is no %s object yet", atomic.name);
    }
    Newxz(end, 1, pwp_atomic);
    end->read_fd = end->write_fd = -1;
    end->read_blocks = end->write_blocks = TRUE;
    end->is_idle = TRUE;
    pwp_attach(aTHX_ SvRV(self), &atomic, end);
    return end;
}

pwp_atomic *pwp_atomic_state(pTHX_ SV *self) { return pwp_state(aTHX_ self, &atomic); }

bool pwp_atomic_is_whole(pTHX_ SV *self) { return pwp_find(aTHX_ self, &atomic) != NULL; }

void pwp_atomic_destroy(pTHX_ SV *self) {
    pwp_atomic *end = pwp_take(aTHX_ self, &atomic);
    if (!end) return;
    pwp_atomic_drop_reader(end);
    pwp_atomic_drop_writer(end);
    Safefree(end);
}

SV *pwp_atomic_value(pTHX_ SV *self, const char *key) {
    SV **value;
    (void)pwp_atomic_state(aTHX_ self);
    value = hv_fetch((HV *)SvRV(self), key, (I32)strlen(key), 0);
    return value ? *value : &PL_sv_undef;
}

int pwp_atomic_blocks(const pwp_atomic *end, int which) {
    int read = end->reader && which != PWP_WRITING_END ? end->read_blocks : -1;
    int write = end->writer && which != PWP_READING_END ? end->write_blocks : -1;
    if (read < 0) return write;
    return write < 0 || write == read ? read : -1;
}

void pwp_atomic_set_blocks(pwp_atomic *end, int which, bool blocks) {
    if (which != PWP_WRITING_END) end->read_blocks = blocks;
    if (which != PWP_READING_END) end->write_blocks = blocks;
}

/* Whether the handle in the object's hash is open on this number. */
static bool is_open(pTHX_ SV *self, const char *key, bool for_writing, int fd) {
    SV **kept = hv_fetch((HV *)SvRV(self), key, 2, 0);
    SV *handle = kept && SvROK(*kept) ? SvRV(*kept) : NULL;
    IO *io = handle && isGV_with_GP(handle) ? GvIO((GV *)handle) : NULL;
    PerlIO *layers = !io ? NULL : for_writing ? IoOFP(io) : IoIFP(io);
    return layers && PerlIO_fileno(layers) == fd;
}

static void cut_reader(pwp_atomic *end) {
    end->read_is_cut = TRUE;
    pwp_atomic_drop_reader(end);
}

static void cut_writer(pwp_atomic *end) {
    end->write_is_cut = TRUE;
    pwp_atomic_drop_writer(end);
}

pwp_atomic *pwp_atomic_still(pTHX_ SV *self) {
    pwp_atomic *end = pwp_atomic_state(aTHX_ self);
    if (end->reader && !is_open(aTHX_ self, "rh", FALSE, end->read_fd)) cut_reader(end);
    if (end->writer && !is_open(aTHX_ self, "wh", TRUE, end->write_fd)) cut_writer(end);
    if (end->writer && misses(end)) {
        end->is_unsaid = TRUE;
        cut_writer(end);
    }
    return end;
}

pwp_atomic *pwp_atomic_still_reading(pTHX_ SV *self) {
    pwp_atomic *end = pwp_atomic_still(aTHX_ self);
    if (end->reader && !is_file(end->read_fd, &end->read_file)) cut_reader(end);
    end->is_idle = FALSE;
    return end;
}

/* The dictionary is read when it is first needed. Perl code does that. */
static void load_dictionary(pTHX_ SV *self) {
    dSP;
    ENTER;
    SAVETMPS;
    PUSHMARK(SP);
    XPUSHs(self);
    PUTBACK;
    call_pv("Pipework::Atomic::_load_dictionary", G_VOID | G_DISCARD);
    FREETMPS;
    LEAVE;
}

/* Croaks: the object has no such end, or no longer. */
static void no_end(pTHX_ bool is_cut, const char *words) {
    if (!is_cut) croak("%s", words);
    errno = EBADF;
    croak("%s: %s", words, Strerror(EBADF));
}

pwp_atomic *pwp_atomic_reading(pTHX_ SV **self) {
    pwp_atomic *end = pwp_atomic_still(aTHX_ *self);
    if (end->is_idle) end = pwp_atomic_still_reading(aTHX_ *self);
    if (!end->reader) no_end(aTHX_ end->read_is_cut, "Not a read handle");
    if (!end->zstd_is_due) return end;
    *self = pwp_pin(aTHX_ *self);
    load_dictionary(aTHX_ *self);
    return pwp_atomic_reading(aTHX_ self);
}

pwp_atomic *pwp_atomic_writing(pTHX_ SV **self) {
    pwp_atomic *end = pwp_atomic_still(aTHX_ *self);
    if (!end->writer) {
        end->is_unsaid = FALSE;
        no_end(aTHX_ end->write_is_cut, "Cannot call write on a pipe reader");
    }
    if (!end->zstd_is_due) return end;
    *self = pwp_pin(aTHX_ *self);
    load_dictionary(aTHX_ *self);
    return pwp_atomic_writing(aTHX_ self);
}
