# Pipework::Atomic. The work is in src/atomic*.c, and the parts without C in lib/Pipework/Atomic.pm.

MODULE = Pipework    PACKAGE = Pipework::Atomic

BOOT:
{
    HV *stash = gv_stashpvs("Pipework::Atomic", GV_ADD);
    newCONSTSUB(stash, "PIPE_BUF", newSVuv(PIPE_BUF));
    newCONSTSUB(stash, "_DEFAULT_LEVEL", newSViv(PWK_DEFAULT_ZSTD_LEVEL));
    newCONSTSUB(stash, "_DEFAULT_READ_SIZE", newSVuv(PWK_DEFAULT_READ_SIZE));
}

# ---------------------------------------------------------------- writing

void
write_message(pwp_object self, SV *message)
  CODE:
    message = pwp_fetch(aTHX_ message);
    PWP_GIVE_NUMBER(pwp_atomic_write_message(aTHX_ self, message));

void
write_burst(pwp_object self, SV *burst)
  CODE:
    PWP_GIVE_IF(pwp_atomic_write_burst(aTHX_ self, pwp_fetch(aTHX_ burst)), 1);

void
fits_in_burst(pwp_object self, SV *burst)
  CODE:
  {
    size_t in_pipe;
    PWP_GIVE_IF(pwp_atomic_fits_in_burst(aTHX_ self, pwp_fetch(aTHX_ burst), &in_pipe), in_pipe);
  }

void
send_many(pwp_object self, ...)
  CODE:
  {
    SV **messages;
    Newx(messages, items, SV *);
    SAVEFREEPV(messages);
    for (I32 i = 1; i < items; i++) messages[i - 1] = pwp_fetch(aTHX_ ST(i));
    pwp_atomic_send_many(aTHX_ self, messages, items - 1);
    PWP_GIVE_NUMBER(items - 1);
  }

void
flush(pwp_object self, ...)
  CODE:
    pwp_atomic_flush(aTHX_ self, pwp_atomic_asked(aTHX_ ax, items, "blocking"));

void
pending_output(SV *self)
  CODE:
    PWP_GIVE_NUMBER(pwk_atomic_writer_pending(pwp_atomic_still(aTHX_ self)->writer) > 0);

void
key(SV *self)
  CODE:
    PWP_GIVE(pwp_atomic_key(aTHX_ pwk_atomic_writer_key(pwp_atomic_writing(aTHX_ &self)->writer)));

# ---------------------------------------------------------------- reading

void
read_message(pwp_object self, ...)
  PREINIT:
    pwp_reading reading = {NULL, FALSE, FALSE, FALSE, PWK_NEVER, {0}};
    bool debugs;
    SV *compressed;
  PPCODE:
    reading.self = self;
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
get_line_burst_or_data(pwp_object self, ...)
  PREINIT:
    pwp_reading reading = {NULL, TRUE, FALSE, FALSE, PWK_NEVER, {0}};
    bool is_there;
    SV *line;
    SV *compressed;
  PPCODE:
    reading.self = self;
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
recv(pwp_object self, ...)
  ALIAS:
    next_item = 1
  CODE:
  {
    pwp_reading reading = {NULL, ix == 1, FALSE, TRUE, PWK_NEVER, {0}};
    reading.self = self;
    reading.deadline = pwp_deadline(aTHX_ PWP_TIMEOUT(1));
    pwp_atomic_must_next(aTHX_ &reading);
    PWP_GIVE((ix ? pwp_atomic_item : pwp_atomic_data)(aTHX_ &reading.item));
  }

void
eof(SV *self)
  CODE:
    PWP_GIVE_NUMBER(pwp_atomic_eof(aTHX_ self));

void
fill_buffer(SV *self)
  CODE:
    PWP_GIVE_NUMBER(pwp_atomic_fill(aTHX_ self));

void
torn(SV *self)
  CODE:
  {
    const pwp_atomic *end = pwp_atomic_state(aTHX_ self);
    PWP_GIVE(end->torn.kind ? pwp_atomic_report(aTHX_ &end->torn) : &PL_sv_undef);
  }

# ---------------------------------------------------------------- either end

void
blocking(pwp_object self, ...)
  ALIAS:
    read_blocking = PWP_READING_END
    write_blocking = PWP_WRITING_END
  CODE:
  {
    bool blocks = FALSE;
    pwp_atomic *end;
    int answer;
    if (items > 1) blocks = SvTRUE_nomg(pwp_fetch(aTHX_ ST(1)));
    end = pwp_atomic_state(aTHX_ self);
    if (items > 1) pwp_atomic_set_blocks(end, ix, blocks);
    answer = pwp_atomic_blocks(end, ix);
    PWP_GIVE_IF(answer >= 0, answer);
  }

void
size(SV *self)
  ALIAS:
    capacity = 1
  CODE:
  {
    pwk_error error;
    size_t bytes = pwp_atomic_capacity(aTHX_ self, 0, FALSE, &error);
    if (!bytes && ix == 1) pwp_throw(aTHX_ &error);
    if (!bytes) pwp_failed(aTHX_ &error);
    PWP_GIVE_IF(bytes, bytes);
  }

void
resize(pwp_object self, SV *bytes)
  ALIAS:
    resize_or_max = 1
  CODE:
  {
    pwk_error error;
    size_t now;
    now = pwp_count(aTHX_ bytes);
    /* The kernel makes one page of less. */
    now = pwp_atomic_capacity(aTHX_ self, now ? now : 1, ix == 1, &error);
    if (!now) pwp_failed(aTHX_ &error);
    PWP_GIVE_IF(now, now);
  }

void
max_size(...)
  CODE:
  {
    pwk_error error;
    size_t bytes;
    bool is_known = pwk_atomic_max_capacity(&bytes, &error) == PWK_OK;
    PERL_UNUSED_VAR(items);
    if (!is_known) pwp_failed(aTHX_ &error);
    PWP_GIVE_IF(is_known, bytes);
  }

void
set_mixed_data_mode(SV *self)
  CODE:
    pwp_atomic_set_mixed(aTHX_ self);

void
rh(SV *self)
  ALIAS:
    wh = 1
    compression = 2
    compression_level = 3
    compression_dictionary = 4
    compression_dictionary_file = 5
  CODE:
  {
    static const char *const keys[] = {
        "rh", "wh", "compression", "compression_level", "compression_dictionary",
        "compression_dictionary_file",
    };
    PWP_GIVE(sv_mortalcopy(pwp_atomic_value(aTHX_ self, keys[ix])));
  }

void
is_reader(SV *self)
  ALIAS:
    is_writer = 1
  CODE:
    PWP_GIVE_IF(SvOK(pwp_atomic_value(aTHX_ self, ix ? "wh" : "rh"))
                    && !SvOK(pwp_atomic_value(aTHX_ self, ix ? "rh" : "wh")),
                1);

# ---------------------------------------------------------------- for lib/Pipework/Atomic.pm

void
_begin(SV *self)
  CODE:
    pwp_atomic_begin(aTHX_ self);

void
_read_from(pwp_object self, SV *fd, ...)
  ALIAS:
    _write_to = 1
  CODE:
  {
    pwk_atomic_options options;
    int number;
    number = (int)pwp_integer(aTHX_ fd);
    pwp_atomic_options(aTHX_ ax + 2, items - 2, &options);
    (ix ? pwp_atomic_write_to : pwp_atomic_read_from)(aTHX_ self, number, &options);
  }

void
_read_fifo(pwp_object self, SV *path, ...)
  ALIAS:
    _listen_fifo = 1
  CODE:
  {
    pwk_atomic_options options;
    path = pwp_fetch(aTHX_ path);
    pwp_atomic_options(aTHX_ ax + 2, items - 2, &options);
    PWP_GIVE_NUMBER(pwp_atomic_read_fifo(
        aTHX_ self, ix ? pwk_atomic_reader_listen_fifo : pwk_atomic_reader_open_fifo,
        pwp_path(aTHX_ path, "fifo"), &options));
  }

void
_read_with(pwp_object self, SV *other)
  CODE:
    PWP_GIVE_NUMBER(pwp_atomic_read_with(aTHX_ self, other));

void
_lend(pwp_object self, SV *fd)
  CODE:
  {
    int number;
    number = (int)pwp_integer(aTHX_ fd);
    pwp_atomic_lend(aTHX_ self, number);
  }

int
_open_fifo(SV *path)
  CODE:
    RETVAL = pwp_atomic_open_fifo(aTHX_ pwp_path(aTHX_ pwp_fetch(aTHX_ path), "fifo"));
  OUTPUT:
    RETVAL

int
_fd_flags(int fd)
  CODE:
    RETVAL = fcntl(fd, F_GETFD);
  OUTPUT:
    RETVAL

void
_set_fd_flags(int fd, int flags)
  CODE:
    (void)fcntl(fd, F_SETFD, flags);

void
_set_zstd(pwp_object self, SV *level, SV *dictionary, SV *accept_unchecked)
  CODE:
  {
    pwk_atomic_options options;
    IV wanted;
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
  }

void
_set_plain(SV *self)
  CODE:
    pwp_atomic_set_zstd(aTHX_ self, NULL);

void
_zstd_is_due(SV *self)
  CODE:
  {
    pwp_atomic *end = pwp_atomic_state(aTHX_ self);
    end->zstd_is_due = end->is_compressed = TRUE;
  }

void
_set_keep_compressed(pwp_object self, SV *keep)
  CODE:
  {
    bool keeps;
    keeps = SvTRUE_nomg(pwp_fetch(aTHX_ keep));
    pwk_atomic_reader_set_keep_compressed(pwp_atomic_still(aTHX_ self)->reader, keeps);
  }

void
_set_read_size(pwp_object self, SV *count)
  ALIAS:
    _set_exact = 1
  CODE:
  {
    UV wanted;
    pwk_atomic_reader *reader;
    wanted = pwp_count(aTHX_ count);
    reader = pwp_atomic_still(aTHX_ self)->reader;
    if (ix) pwk_atomic_reader_set_exact(reader, wanted);
    else pwk_atomic_reader_set_read_size(reader, wanted);
  }

void
_buffered(SV *self)
  CODE:
    PWP_GIVE_NUMBER(pwk_atomic_reader_buffered(pwp_atomic_still(aTHX_ self)->reader));

void
_finish(SV *self)
  CODE:
    PWP_GIVE(boolSV(pwp_atomic_finish(aTHX_ self)));

void
_drop(pwp_object self, SV *writer)
  CODE:
  {
    bool is_writer;
    is_writer = SvTRUE_nomg(pwp_fetch(aTHX_ writer));
    (is_writer ? pwp_atomic_drop_writer : pwp_atomic_drop_reader)(pwp_atomic_state(aTHX_ self));
  }

void
_is_whole(SV *self)
  CODE:
    PWP_GIVE(boolSV(pwp_atomic_is_whole(aTHX_ self)));

void
_must_be_whole(SV *self)
  CODE:
    (void)pwp_atomic_state(aTHX_ self);

void
_destroy(SV *self)
  CODE:
    pwp_atomic_destroy(aTHX_ self);
