/*
 * Bytes through a Pipework::Pipe: read, sent, and copied to and from descriptors. Bytes that were
 * read for a line or a record that is not complete stay in the end: a signal handler that dies, or a
 * deadline, loses nothing.
 */
#include "pipe.h"
#include "fd.h"

/* How much is asked of the pipe at once where nothing says how much will be needed. */
#define USUAL_READ 8192
#define EVERYTHING SIZE_MAX

static size_t held(const pwp_pipe_end *end) {
    return end->len - end->at;
}

static const char *front(const pwp_pipe_end *end) {
    return end->held + end->at;
}

/* Takes `len` of the held bytes, as a mortal string. */
static SV *take(pTHX_ pwp_pipe_end *end, size_t len) {
    SV *bytes = pwp_string(aTHX_ front(end), len);
    pwp_pipe_drop(end, len);
    return bytes;
}

/* Memory behind the held bytes. */
static char *space(pTHX_ pwp_pipe_end *end, size_t more) {
    char *grown;
    if (end->at > 0 && end->space - end->len < more) {
        Move(front(end), end->held, held(end), char);
        end->len -= end->at;
        end->at = 0;
    }
    if (end->space - end->len < more) {
        size_t wanted = end->len + more;
        if (wanted < end->space * 2) wanted = end->space * 2;
        grown = PerlMemShared_realloc(end->held, wanted);
        if (!grown) croak("Out of memory for %" UVuf " bytes", (UV)wanted);
        end->held = grown;
        end->space = wanted;
    }
    return end->held + end->len;
}

/* ---------------------------------------------------------------- waits */

typedef enum { SOME, FULL, UNTIL, KNOW } how;

/* A call that reads, and whether the pipe has ended. */
typedef struct {
    SV *self;
    pwp_pipe_end *end;
    how how;
    size_t wanted;
    char delimiter;
    bool at_end;
} asked;

static pwk_status ask(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    asked *of = arguments;
    pwp_pipe_end *end = of->end;
    size_t got = 0;
    pwk_status status;
    pwk_bytes pieces[2];
    char *into;
    if (!pwp_pipe_is_open(aTHX_ of->self, end, error)) return error->kind;
    if (of->how == KNOW) {
        status = pwk_pipe_reader_peek(end->reader, 1, until, pieces, error);
        of->at_end = status == PWK_OK && pieces[0].len == 0;
        return status;
    }
    into = space(aTHX_ end, of->wanted);
    switch (of->how) {
        case SOME:
            status = pwk_pipe_reader_recv(end->reader, into, of->wanted, until, &got, error);
            of->at_end = status == PWK_OK && got == 0;
            break;
        case FULL:
            status = pwk_pipe_reader_recv_full(end->reader, into, of->wanted, until, &got, error);
            of->at_end = status == PWK_OK && got < of->wanted;
            break;
        default:
            status = pwk_pipe_reader_recv_until(end->reader, (uint8_t)of->delimiter, into,
                                                of->wanted, until, &got, error);
            of->at_end = status == PWK_OK && got < of->wanted
                         && (got == 0 || into[got - 1] != of->delimiter);
    }
    if (status != PWK_OK && of->how != SOME) got = error->done;
    end->len += got;
    /* The next attempt wants the rest. */
    if (status != PWK_OK) of->wanted -= got;
    return status;
}

static bool wait_for(pTHX_ asked *of, pwk_deadline deadline, uint64_t done) {
    pwk_error error;
    if (of->how != KNOW && of->wanted == 0) return true;
    if (pwp_wait(aTHX_ &of->self, ask, of, deadline, &error) == PWK_OK) return true;
    pwp_pipe_failed(aTHX_ of->end, &error, done);
    return false;
}

/* Waits until `size` bytes are held, or the end has come. */
static bool gather(pTHX_ asked *of, size_t size) {
    while (held(of->end) < size && !of->at_end) {
        size_t missing = size - held(of->end);
        of->how = FULL;
        of->wanted = missing < PWK_PIPE_CAPACITY ? missing : PWK_PIPE_CAPACITY;
        if (!wait_for(aTHX_ of, PWK_NEVER, held(of->end))) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- bytes */

SV *pwp_pipe_recv(pTHX_ SV *self, SV *max, SV *seconds) {
    asked of = {NULL, NULL, SOME, 0, 0, false};
    pwk_deadline deadline;
    IV most = PWK_PIPE_CAPACITY;
    if (max) max = pwp_number(aTHX_ max);
    if (max && SvOK(max)) most = pwp_integer(aTHX_ max);
    if (most <= 0) croak("recv takes at least one byte");
    deadline = pwp_deadline(aTHX_ seconds);
    of.self = self;
    of.end = pwp_pipe_use(aTHX_ self, true);
    if (!of.end) return NULL;
    /* No more is there than it holds. */
    of.wanted = pwk_pipe_reader_capacity(of.end->reader);
    if ((size_t)most < of.wanted) of.wanted = (size_t)most;
    if (held(of.end) == 0 && !wait_for(aTHX_ &of, deadline, 0)) return NULL;
    return take(aTHX_ of.end, held(of.end) < (size_t)most ? held(of.end) : (size_t)most);
}

/* Where in the buffer to begin. Dies before anything is done, and changes nothing. */
static size_t begin_at(pTHX_ SV *buffer, IV offset) {
    size_t len = 0;
    pwp_must_be_writable(aTHX_ buffer);
    if (offset == 0) return 0;
    SvGETMAGIC(buffer);
    if (SvOK(buffer)) len = pwp_bytes(aTHX_ buffer, "read").len;
    if (offset < 0) offset += (IV)len;
    if (offset < 0) croak("Offset outside string");
    pwp_must_fit(aTHX_ (size_t)offset + 1);
    return (size_t)offset;
}

/* Puts bytes into the buffer as sysread does. */
static void put(pTHX_ SV *buffer, size_t begin, SV *bytes) {
    STRLEN len;
    if (begin == 0 || !SvOK(buffer)) sv_setpvs(buffer, "");
    (void)SvPV_force_nomg(buffer, len);
    if (SvUTF8(buffer)) sv_utf8_downgrade(buffer, FALSE);
    if (begin > SvCUR(buffer)) {
        SvGROW(buffer, begin + 1);
        Zero(SvEND(buffer), begin - SvCUR(buffer), char);
    }
    SvCUR_set(buffer, begin);
    *SvEND(buffer) = '\0';
    sv_catsv_nomg(buffer, bytes);
    SvSETMAGIC(buffer);
}

IV pwp_pipe_read(pTHX_ SV *self, SV *buffer, SV *len, SV *offset, bool all) {
    asked of = {self, NULL, SOME, 0, 0, false};
    IV asked_for, at;
    size_t wanted, begin;
    SV *bytes;
    asked_for = pwp_integer(aTHX_ len);
    at = pwp_integer(aTHX_ offset);
    if (asked_for < 0) croak("Negative length");
    wanted = (size_t)asked_for;
    pwp_keep(aTHX_ buffer);
    (void)begin_at(aTHX_ buffer, at);
    of.end = pwp_pipe_use(aTHX_ self, true);
    if (!of.end) return -1;
    if (all) {
        if (!gather(aTHX_ &of, wanted)) return -1;
    } else if (held(of.end) == 0) {
        /* No more is there than it holds. */
        of.wanted = pwk_pipe_reader_capacity(of.end->reader);
        if (wanted < of.wanted) of.wanted = wanted;
        if (!wait_for(aTHX_ &of, PWK_NEVER, 0)) return -1;
    }
    /* A handler may have changed it: if nothing can be put there now, nothing is taken. */
    begin = begin_at(aTHX_ buffer, at);
    bytes = take(aTHX_ of.end, held(of.end) < wanted ? held(of.end) : wanted);
    put(aTHX_ buffer, begin, bytes);
    return (IV)SvCUR(bytes);
}

bool pwp_pipe_eof(pTHX_ SV *self) {
    asked of = {self, NULL, KNOW, 0, 0, false};
    of.end = pwp_pipe_use(aTHX_ self, true);
    if (!of.end) return true;
    if (held(of.end) > 0) return false;
    /* As with a handle, a failure is an end. */
    return !wait_for(aTHX_ &of, PWK_NEVER, 0) || of.at_end;
}

/* ---------------------------------------------------------------- lines */

/* The meaning of `$/`: a separator of some bytes, records of `record` bytes, or everything. */
typedef struct {
    const char *separator;
    size_t len, record;
    bool paragraphs;
} division;

static division division_of(pTHX) {
    division by = {NULL, 0, 0, false};
    SV *separator = get_sv("/", GV_ADD);
    STRLEN len;
    SvGETMAGIC(separator);
    if (!SvOK(separator)) {
        by.record = EVERYTHING;
    } else if (SvROK(separator)) {
        IV record = pwp_integer(aTHX_ SvRV(separator));
        by.record = record > 0 ? (size_t)record : EVERYTHING;
    } else {
        /* A handler may change it in the middle of a line. */
        by.separator = SvPV_const(sv_mortalcopy(separator), len);
        by.len = len;
        by.paragraphs = len == 0;
        if (by.paragraphs) {
            by.separator = "\n\n";
            by.len = 2;
        }
    }
    return by;
}

/* Drops the line ends that are there. True if something else is next. */
static bool skip_line_ends(pwp_pipe_end *end) {
    pwk_bytes pieces[2];
    while (held(end) > 0 && *front(end) == '\n') pwp_pipe_drop(end, 1);
    if (held(end) > 0) return true;
    while (pwk_pipe_reader_peek(end->reader, 0, 0, pieces, NULL) == PWK_OK && pieces[0].len > 0) {
        if (*(const char *)pieces[0].data != '\n') return true;
        pwk_pipe_reader_consume(end->reader, 1, NULL);
    }
    return false;
}

/* `size` bytes, or the rest at the end. */
static SV *record(pTHX_ asked *of, size_t size) {
    if (!gather(aTHX_ of, size) || held(of->end) == 0) return NULL;
    return take(aTHX_ of->end, held(of->end) < size ? held(of->end) : size);
}

/* Where the separator ends in the held bytes, searched from `from` on; 0 if it is not there. */
static size_t line_end(const pwp_pipe_end *end, const division *by, size_t from) {
    const char *data = front(end);
    while (from + by->len <= held(end)) {
        const char *found = memchr(data + from, by->separator[0], held(end) - by->len + 1 - from);
        if (!found) return 0;
        from = (size_t)(found - data);
        if (memcmp(found, by->separator, by->len) == 0) return from + by->len;
        from++;
    }
    return 0;
}

static SV *line(pTHX_ asked *of, const division *by) {
    size_t searched = 0, len;
    uint64_t taken;
    SV *result;
    while (by->paragraphs && !skip_line_ends(of->end)) {
        of->how = KNOW;
        if (!wait_for(aTHX_ of, PWK_NEVER, 0) || of->at_end) return NULL;
    }
    for (;;) {
        len = line_end(of->end, by, searched);
        if (len > 0 || of->at_end) break;
        /* A separator may have begun. */
        searched = held(of->end) < by->len ? 0 : held(of->end) - by->len + 1;
        of->how = UNTIL;
        of->wanted = USUAL_READ;
        of->delimiter = by->separator[by->len - 1];
        taken = of->end->taken;
        if (!wait_for(aTHX_ of, PWK_NEVER, held(of->end))) return NULL;
        /* A handler has read the beginning. */
        if (of->end->taken != taken) searched = 0;
    }
    if (len == 0) len = held(of->end);
    if (len == 0) return NULL;
    result = take(aTHX_ of->end, len);
    if (by->paragraphs) (void)skip_line_ends(of->end);
    return result;
}

SV *pwp_pipe_readline(pTHX_ SV *self) {
    asked of = {self, NULL, UNTIL, 0, 0, false};
    division by = division_of(aTHX);
    of.end = pwp_pipe_use(aTHX_ self, true);
    if (!of.end) return NULL;
    return by.record ? record(aTHX_ &of, by.record) : line(aTHX_ &of, &by);
}

/* ---------------------------------------------------------------- send */

typedef struct {
    SV *self;
    pwp_pipe_end *end;
    const char *data;
    size_t len, done;
} sending;

static pwk_status send_on(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    sending *of = arguments;
    pwk_status status;
    if (!pwp_pipe_is_open(aTHX_ of->self, of->end, error)) return error->kind;
    status = pwk_pipe_writer_send_all(of->end->writer, of->data + of->done, of->len - of->done,
                                      until, error);
    of->done = status == PWK_OK ? of->len : of->done + error->done;
    return status;
}

IV pwp_pipe_send(pTHX_ SV *self, SV *data, SV *seconds) {
    sending of = {self, NULL, NULL, 0, 0};
    pwk_deadline deadline;
    pwk_bytes bytes;
    pwk_error error;
    /* A handler may change the caller's, but not this one. Perl shares long strings. */
    data = sv_mortalcopy(data);
    deadline = pwp_deadline(aTHX_ seconds);
    bytes = pwp_bytes(aTHX_ data, "send");
    of.end = pwp_pipe_use(aTHX_ self, false);
    if (!of.end) return -1;
    of.data = bytes.data;
    of.len = bytes.len;
    if (pwp_wait(aTHX_ &of.self, send_on, &of, deadline, &error) == PWK_OK) return (IV)of.len;
    pwp_pipe_failed(aTHX_ of.end, &error, of.done);
    return -1;
}

/* ---------------------------------------------------------------- copies */

typedef struct {
    SV *self;
    pwp_pipe_end *end;
    int fd;
    uint64_t len, done;
} copying;

static uint64_t left(const copying *of) {
    return of->len == UINT64_MAX ? UINT64_MAX : of->len - of->done;
}

static pwk_status copy_to(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    copying *of = arguments;
    pwp_pipe_end *end = of->end;
    uint64_t copied = 0;
    pwk_status status;
    if (!pwp_pipe_is_open(aTHX_ of->self, end, error)) return error->kind;
    if (end->len > end->at) {
        /* The bytes that readline has taken come first. */
        uint64_t len = end->len - end->at;
        if (len > left(of)) len = left(of);
        status = pwk_fd_write_all(of->fd, end->held + end->at, (size_t)len, until, error);
        if (status != PWK_OK) len = error->done;
        pwp_pipe_drop(end, (size_t)len);
        of->done += len;
        if (status != PWK_OK) return status;
    }
    if (left(of) == 0) return PWK_OK;
    status = pwk_pipe_reader_copy_to_fd(end->reader, of->fd, left(of), until, &copied, error);
    of->done += status == PWK_OK ? copied : error->done;
    return status;
}

static pwk_status copy_from(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    copying *of = arguments;
    uint64_t copied = 0;
    pwk_status status;
    if (!pwp_pipe_is_open(aTHX_ of->self, of->end, error)) return error->kind;
    status =
        pwk_pipe_writer_copy_from_fd(of->end->writer, of->fd, left(of), until, &copied, error);
    of->done += status == PWK_OK ? copied : error->done;
    return status;
}

/* The descriptor of a handle, or a number. */
static int descriptor(pTHX_ SV *fd) {
    int number;
    fd = pwp_fetch(aTHX_ fd);
    if (SvROK(fd) || isGV_with_GP(fd)) {
        PerlIO *file = IoIFP(sv_2io(fd));
        return file ? PerlIO_fileno(file) : -1;
    }
    if (!pwp_fd_is_number(aTHX_ fd, &number)) croak("Neither a descriptor nor a handle");
    return number;
}

IV pwp_pipe_copy(pTHX_ SV *self, SV *fd, SV *len, SV *seconds, bool reads) {
    copying of = {self, NULL, -1, UINT64_MAX, 0};
    pwk_deadline deadline;
    pwk_error error;
    of.fd = descriptor(aTHX_ fd);
    if (len) len = pwp_number(aTHX_ len);
    if (len && SvOK(len)) {
        IV wanted = pwp_integer(aTHX_ len);
        if (wanted < 0) croak("Negative length");
        of.len = (uint64_t)wanted;
    }
    deadline = pwp_deadline(aTHX_ seconds);
    of.end = pwp_pipe_use(aTHX_ self, reads);
    if (!of.end) return -1;
    if (pwp_wait(aTHX_ &of.self, reads ? copy_to : copy_from, &of, deadline, &error) == PWK_OK) {
        return (IV)of.done;
    }
    pwp_pipe_failed(aTHX_ of.end, &error, of.done);
    return -1;
}
