# Pipework::Atomic. The work is in src/atomic*.c, and what needs no C in lib/Pipework/Atomic.pm.

MODULE = Pipework    PACKAGE = Pipework::Atomic

BOOT:
{
    HV *stash = gv_stashpvs("Pipework::Atomic", GV_ADD);
    newCONSTSUB(stash, "PIPE_BUF", newSVuv(PIPE_BUF));
}

UV
write_message(self, message)
    SV *self
    SV *message
  CODE:
    self = pwp_self(aTHX_ ax, items);
    message = pwp_fetch(aTHX_ message);
    RETVAL = pwp_atomic_write_message(aTHX_ self, message);
  OUTPUT:
    RETVAL

SV *
write_burst(self, burst)
    SV *self
    SV *burst
  CODE:
    self = pwp_self(aTHX_ ax, items);
    burst = pwp_fetch(aTHX_ burst);
    RETVAL = pwp_atomic_write_burst(aTHX_ self, burst) ? newSViv(1) : newSV(0);
  OUTPUT:
    RETVAL

SV *
fits_in_burst(self, burst)
    SV *self
    SV *burst
  PREINIT:
    size_t in_pipe;
  CODE:
    self = pwp_self(aTHX_ ax, items);
    burst = pwp_fetch(aTHX_ burst);
    RETVAL = pwp_atomic_fits_in_burst(aTHX_ self, burst, &in_pipe) ? newSVuv(in_pipe) : newSV(0);
  OUTPUT:
    RETVAL

UV
send_many(self, ...)
    SV *self
  PREINIT:
    SV **messages;
    I32 i;
  CODE:
    self = pwp_self(aTHX_ ax, items);
    Newx(messages, items, SV *);
    SAVEFREEPV(messages);
    for (i = 1; i < items; i++) messages[i - 1] = pwp_fetch(aTHX_ ST(i));
    pwp_atomic_send_many(aTHX_ self, messages, items - 1);
    RETVAL = items - 1;
  OUTPUT:
    RETVAL

void
flush(self, ...)
    SV *self
  PREINIT:
    bool waits;
  CODE:
    self = pwp_self(aTHX_ ax, items);
    waits = pwp_atomic_asked(aTHX_ ax, items, "blocking");
    pwp_atomic_flush(aTHX_ self, waits);

IV
pending_output(self)
    SV *self
  CODE:
    RETVAL = pwk_atomic_writer_pending(pwp_atomic_still(aTHX_ self)->writer) > 0;
  OUTPUT:
    RETVAL

void
read_message(self, ...)
    SV *self
  PREINIT:
    pwp_reading reading = {NULL, FALSE, FALSE, FALSE, PWK_NEVER, {0}};
    bool debugs;
    SV *compressed;
  PPCODE:
    PERL_UNUSED_VAR(self);
    reading.self = pwp_self(aTHX_ ax, items);
    debugs = pwp_atomic_asked(aTHX_ ax, items, "debug");
    if (pwp_atomic_state(aTHX_ reading.self)->is_mixed) {
        croak("Cannot call read_message in mixed_data_mode, call get_line_burst_or_data");
    }
    if (!pwp_atomic_next(aTHX_ &reading)) XSRETURN_EMPTY;
    PWP_SP_AGAIN;
    if (debugs) {
        XPUSHs(pwp_atomic_debug(aTHX_ &reading.item));
        XSRETURN(1);
    }
    XPUSHs(pwp_atomic_data(aTHX_ &reading.item));
    compressed = GIMME_V == G_LIST ? pwp_atomic_compressed(aTHX_ &reading.item) : NULL;
    if (compressed) XPUSHs(compressed);

void
get_line_burst_or_data(self, ...)
    SV *self
  PREINIT:
    pwp_reading reading = {NULL, TRUE, FALSE, FALSE, PWK_NEVER, {0}};
    bool is_there;
    SV *line;
    SV *compressed;
  PPCODE:
    PERL_UNUSED_VAR(self);
    reading.self = pwp_self(aTHX_ ax, items);
    reading.peeks = pwp_atomic_asked(aTHX_ ax, items, "peek_line");
    if (!pwp_atomic_reading(aTHX_ &reading.self)->is_mixed) {
        croak("missing 'burst_prefix', not in mixed_data_mode");
    }
    is_there = pwp_atomic_next(aTHX_ &reading);
    PWP_SP_AGAIN;
    EXTEND(SP, 4);
    if (is_there) {
        PUSHs(pwp_atomic_type(aTHX_ &reading.item));
        PUSHs(pwp_atomic_data(aTHX_ &reading.item));
        compressed = pwp_atomic_compressed(aTHX_ &reading.item);
        if (compressed) {
            PUSHs(newSVpvs_flags("compressed", SVs_TEMP));
            PUSHs(compressed);
        }
    } else if (reading.peeks && (line = pwp_atomic_peek(aTHX_ reading.self))) {
        PUSHs(newSVpvs_flags("peek", SVs_TEMP));
        PUSHs(line);
    }

void
recv(self, seconds = NULL)
    SV *self
    SV *seconds
  PREINIT:
    pwp_reading reading = {NULL, FALSE, FALSE, TRUE, PWK_NEVER, {0}};
  PPCODE:
    PERL_UNUSED_VAR(self);
    reading.self = pwp_self(aTHX_ ax, items);
    reading.deadline = pwp_deadline(aTHX_ seconds);
    pwp_atomic_must_next(aTHX_ &reading);
    PWP_SP_AGAIN;
    XPUSHs(pwp_atomic_data(aTHX_ &reading.item));

void
next_item(self, seconds = NULL)
    SV *self
    SV *seconds
  PREINIT:
    pwp_reading reading = {NULL, TRUE, FALSE, TRUE, PWK_NEVER, {0}};
  PPCODE:
    PERL_UNUSED_VAR(self);
    reading.self = pwp_self(aTHX_ ax, items);
    reading.deadline = pwp_deadline(aTHX_ seconds);
    pwp_atomic_must_next(aTHX_ &reading);
    PWP_SP_AGAIN;
    XPUSHs(pwp_atomic_item(aTHX_ &reading.item));

IV
eof(self)
    SV *self
  CODE:
    RETVAL = pwp_atomic_eof(aTHX_ self);
  OUTPUT:
    RETVAL

UV
fill_buffer(self)
    SV *self
  CODE:
    RETVAL = pwp_atomic_fill(aTHX_ self);
  OUTPUT:
    RETVAL

SV *
torn(self)
    SV *self
  PREINIT:
    const pwp_atomic *end;
  CODE:
    end = pwp_atomic_state(aTHX_ self);
    RETVAL = end->torn.kind ? SvREFCNT_inc(pwp_atomic_report(aTHX_ &end->torn)) : newSV(0);
  OUTPUT:
    RETVAL

SV *
key(self)
    SV *self
  CODE:
    RETVAL = pwp_atomic_key(aTHX_ pwk_atomic_writer_key(pwp_atomic_writing(aTHX_ &self)->writer));
    SvREFCNT_inc_simple_void_NN(RETVAL);
  OUTPUT:
    RETVAL

void
blocking(self, ...)
    SV *self
  ALIAS:
    read_blocking = PWP_READING_END
    write_blocking = PWP_WRITING_END
  PREINIT:
    bool blocks = FALSE;
    pwp_atomic *end;
    int answer;
  PPCODE:
    self = pwp_self(aTHX_ ax, items);
    if (items > 1) blocks = SvTRUE_nomg(pwp_fetch(aTHX_ ST(1)));
    PWP_SP_AGAIN;
    end = pwp_atomic_state(aTHX_ self);
    if (items > 1) pwp_atomic_set_blocks(end, ix, blocks);
    answer = pwp_atomic_blocks(end, ix);
    XPUSHs(answer < 0 ? &PL_sv_undef : sv_2mortal(newSViv(answer)));

SV *
size(self)
    SV *self
  ALIAS:
    capacity = 1
  PREINIT:
    pwk_error error;
    size_t bytes;
  CODE:
    bytes = pwp_atomic_capacity(aTHX_ self, 0, FALSE, &error);
    if (!bytes && ix == 1) pwp_throw(aTHX_ &error);
    if (!bytes) pwp_failed(aTHX_ &error);
    RETVAL = bytes ? newSVuv(bytes) : newSV(0);
  OUTPUT:
    RETVAL

SV *
resize(self, bytes)
    SV *self
    SV *bytes
  ALIAS:
    resize_or_max = 1
  PREINIT:
    pwk_error error;
    size_t now;
  CODE:
    self = pwp_self(aTHX_ ax, items);
    now = pwp_count(aTHX_ bytes);
    /* The kernel makes one page of less. */
    now = pwp_atomic_capacity(aTHX_ self, now ? now : 1, ix == 1, &error);
    if (!now) pwp_failed(aTHX_ &error);
    RETVAL = now ? newSVuv(now) : newSV(0);
  OUTPUT:
    RETVAL

SV *
max_size(...)
  PREINIT:
    pwk_error error;
    size_t bytes;
    bool is_known;
  CODE:
    PERL_UNUSED_VAR(items);
    is_known = pwk_atomic_max_capacity(&bytes, &error) == PWK_OK;
    if (!is_known) pwp_failed(aTHX_ &error);
    RETVAL = is_known ? newSVuv(bytes) : newSV(0);
  OUTPUT:
    RETVAL

void
set_mixed_data_mode(self)
    SV *self
  CODE:
    pwp_atomic_set_mixed(aTHX_ self);

SV *
rh(self)
    SV *self
  ALIAS:
    wh = 1
    compression = 2
    compression_level = 3
    compression_dictionary = 4
    compression_dictionary_file = 5
  PREINIT:
    static const char *const keys[] = {
        "rh", "wh", "compression", "compression_level", "compression_dictionary",
        "compression_dictionary_file",
    };
  CODE:
    RETVAL = newSVsv(pwp_atomic_value(aTHX_ self, keys[ix]));
  OUTPUT:
    RETVAL

SV *
is_reader(self)
    SV *self
  ALIAS:
    is_writer = 1
  PREINIT:
    bool is_one;
  CODE:
    is_one = SvOK(pwp_atomic_value(aTHX_ self, ix ? "wh" : "rh"))
             && !SvOK(pwp_atomic_value(aTHX_ self, ix ? "rh" : "wh"));
    RETVAL = is_one ? newSViv(1) : newSV(0);
  OUTPUT:
    RETVAL

void
_begin(self)
    SV *self
  CODE:
    pwp_atomic_begin(aTHX_ self);

void
_read_from(self, fd, ...)
    SV *self
    SV *fd
  ALIAS:
    _write_to = 1
  PREINIT:
    pwk_atomic_options options;
    int number;
  CODE:
    self = pwp_self(aTHX_ ax, items);
    number = (int)pwp_integer(aTHX_ fd);
    pwp_atomic_options(aTHX_ ax + 2, items - 2, &options);
    if (ix) pwp_atomic_write_to(aTHX_ self, number, &options);
    else pwp_atomic_read_from(aTHX_ self, number, &options);

int
_read_fifo(self, path, ...)
    SV *self
    SV *path
  ALIAS:
    _listen_fifo = 1
  PREINIT:
    pwk_atomic_options options;
  CODE:
    self = pwp_self(aTHX_ ax, items);
    path = pwp_fetch(aTHX_ path);
    pwp_atomic_options(aTHX_ ax + 2, items - 2, &options);
    RETVAL = pwp_atomic_read_fifo(aTHX_ self, ix ? pwk_atomic_reader_listen_fifo : pwk_atomic_reader_open_fifo,
                                  pwp_path(aTHX_ path, "fifo"), &options);
  OUTPUT:
    RETVAL

int
_read_with(self, other)
    SV *self
    SV *other
  CODE:
    self = pwp_self(aTHX_ ax, items);
    RETVAL = pwp_atomic_read_with(aTHX_ self, other);
  OUTPUT:
    RETVAL

void
_lend(self, fd)
    SV *self
    SV *fd
  PREINIT:
    int number;
  CODE:
    self = pwp_self(aTHX_ ax, items);
    number = (int)pwp_integer(aTHX_ fd);
    pwp_atomic_lend(aTHX_ self, number);

int
_open_fifo(path)
    SV *path
  CODE:
    RETVAL = pwp_atomic_open_fifo(aTHX_ pwp_path(aTHX_ pwp_fetch(aTHX_ path), "fifo"));
  OUTPUT:
    RETVAL

int
_fd_flags(fd)
    int fd
  CODE:
    RETVAL = fcntl(fd, F_GETFD);
  OUTPUT:
    RETVAL

void
_set_fd_flags(fd, flags)
    int fd
    int flags
  CODE:
    (void)fcntl(fd, F_SETFD, flags);


void
_set_zstd(self, level, dictionary, accept_unchecked)
    SV *self
    SV *level
    SV *dictionary
    SV *accept_unchecked
  PREINIT:
    pwk_atomic_options options;
    IV wanted;
  CODE:
    self = pwp_self(aTHX_ ax, items);
    wanted = pwp_integer(aTHX_ level);
    dictionary = pwp_fetch(aTHX_ dictionary);
    pwk_atomic_options_init(&options, sizeof options);
    options.compress = true;
    options.level = wanted < I32_MIN ? I32_MIN : wanted > I32_MAX ? I32_MAX : (int32_t)wanted;
    options.accept_unchecked = SvTRUE_nomg(pwp_fetch(aTHX_ accept_unchecked));
    if (SvOK(dictionary)) {
        options.dictionary = pwp_bytes(aTHX_ dictionary, "compression_dictionary");
    }
    pwp_atomic_set_zstd(aTHX_ self, &options);

void
_set_plain(self)
    SV *self
  CODE:
    pwp_atomic_set_zstd(aTHX_ self, NULL);

void
_zstd_is_due(self)
    SV *self
  PREINIT:
    pwp_atomic *end;
  CODE:
    end = pwp_atomic_state(aTHX_ self);
    end->zstd_is_due = end->is_compressed = TRUE;

void
_set_keep_compressed(self, keep)
    SV *self
    SV *keep
  PREINIT:
    bool keeps;
  CODE:
    self = pwp_self(aTHX_ ax, items);
    keeps = SvTRUE_nomg(pwp_fetch(aTHX_ keep));
    pwk_atomic_reader_set_keep_compressed(pwp_atomic_still(aTHX_ self)->reader, keeps);

void
_set_read_size(self, bytes)
    SV *self
    SV *bytes
  PREINIT:
    UV wanted;
  CODE:
    self = pwp_self(aTHX_ ax, items);
    wanted = pwp_count(aTHX_ bytes);
    pwk_atomic_reader_set_read_size(pwp_atomic_still(aTHX_ self)->reader, wanted);

void
_set_exact(self, count)
    SV *self
    SV *count
  PREINIT:
    UV wanted;
  CODE:
    self = pwp_self(aTHX_ ax, items);
    wanted = pwp_count(aTHX_ count);
    pwk_atomic_reader_set_exact(pwp_atomic_still(aTHX_ self)->reader, wanted);

UV
_buffered(self)
    SV *self
  CODE:
    RETVAL = pwk_atomic_reader_buffered(pwp_atomic_still(aTHX_ self)->reader);
  OUTPUT:
    RETVAL

bool
_finish(self)
    SV *self
  CODE:
    RETVAL = pwp_atomic_finish(aTHX_ self);
  OUTPUT:
    RETVAL

void
_drop(self, writer)
    SV *self
    SV *writer
  PREINIT:
    pwp_atomic *end;
    bool is_writer;
  CODE:
    self = pwp_self(aTHX_ ax, items);
    is_writer = SvTRUE_nomg(pwp_fetch(aTHX_ writer));
    end = pwp_atomic_state(aTHX_ self);
    if (is_writer) pwp_atomic_drop_writer(aTHX_ end);
    else pwp_atomic_drop_reader(aTHX_ end);

bool
_is_whole(self)
    SV *self
  CODE:
    RETVAL = pwp_atomic_is_whole(aTHX_ self);
  OUTPUT:
    RETVAL

void
_must_be_whole(self)
    SV *self
  CODE:
    (void)pwp_atomic_state(aTHX_ self);

void
_destroy(self)
    SV *self
  CODE:
    pwp_atomic_destroy(aTHX_ self);
