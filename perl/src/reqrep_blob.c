/*
 * Blobs: memory that is filled once, frozen, and read in place by every process that holds it.
 *
 * Perl code sees this memory only through the scalars that `map` returns. Each is read-only and owns
 * a handle of the blob, so it may outlive the blob's object. Perl code never gets the memory of a
 * draft: `write` copies into it. So no scalar can change a blob after `freeze`.
 */
#include "reqrep.h"

/* Pages are at least this long. */
#define PAGE 4096

/* ---------------------------------------------------------------- classes */

/* The state behind a blob, and behind a scalar that `map` returned. */
static void release_blob(pTHX_ void *blob) {
    PERL_UNUSED_CONTEXT;
    pwk_blob_free(blob);
}

/* A new thread gets a handle of its own. */
static void *share_blob(pTHX_ void *blob) {
    pwk_blob *clone = NULL;
    PERL_UNUSED_CONTEXT;
    (void)pwk_blob_clone(blob, &clone, NULL);
    return clone;
}

const pwp_class pwp_blob_class = {PWP_VTABLE, "Pipework::ReqRep::Blob", release_blob, share_blob};

/* The state behind a draft. One interpreter has it. */
typedef struct draft_state {
    /* NULL once it is frozen. */
    pwk_blob_draft *draft;
    size_t len;
} draft_state;

static void release_draft(pTHX_ void *state) {
    draft_state *draft = state;
    PERL_UNUSED_CONTEXT;
    pwk_blob_draft_free(draft->draft);
    Safefree(draft);
}

/* A new thread gets none: two threads could write to a draft and freeze it at the same time. */
static void *share_nothing(pTHX_ void *state) {
    PERL_UNUSED_CONTEXT;
    PERL_UNUSED_VAR(state);
    return NULL;
}

const pwp_class pwp_draft_class = {PWP_VTABLE, "Pipework::ReqRep::BlobMut", release_draft, share_nothing};

/* A new object, as a mortal reference, which owns the state. */
static SV *object_of(pTHX_ const pwp_class *kind, void *state) {
    SV *object = newSV(0);
    SV *reference = sv_2mortal(newRV_noinc(object));
    pwp_attach(aTHX_ object, kind, state);
    return sv_bless(reference, gv_stashpv(kind->name, GV_ADD));
}

static void throw_at(pTHX_ pwk_status status, pwk_error *error, const char *op) __attribute__((noreturn));
static void throw_at(pTHX_ pwk_status status, pwk_error *error, const char *op) {
    pwp_name_failure(status, error, op);
    pwp_throw(aTHX_ error);
}

/* ---------------------------------------------------------------- making blobs */

/* A copy of a value, for which get-magic has run; a reference stays one. */
static SV *fetched_once(pTHX_ SV *value) {
    SV *copy = sv_newmortal();
    SvGETMAGIC(value);
    sv_setsv_nomg(copy, value);
    return copy;
}

/* The bytes of an argument. The text of a reference would be sent in the place of what it refers to. */
static pwk_bytes bytes_of(pTHX_ SV *argument, const char *method, SV **fetched) {
    if (SvGMAGICAL(argument)) argument = fetched_once(aTHX_ argument);
    if (SvROK(argument) && !SvAMAGIC(argument)) {
        croak("%s takes a string, not a reference", method);
    }
    *fetched = pwp_fetch(aTHX_ argument);
    return pwp_bytes(aTHX_ *fetched, method);
}

static pwk_blob_draft *draft_of(pTHX_ pwp_channel *channel, size_t len) {
    pwk_blob_draft *draft = NULL;
    pwk_error error;
    pwk_status status = pwk_blob_draft_new(channel->segment, len, &draft, &error);
    if (status != PWK_OK) throw_at(aTHX_ status, &error, "reqrep blob");
    return draft;
}

SV *pwp_reqrep_blob(pTHX_ SV *self, int role, SV *len) {
    IV wanted = pwp_integer(aTHX_ len);
    pwp_channel *channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    draft_state *state;
    pwk_blob_draft *draft;
    if (wanted < 0) croak("%s->blob: negative length", pwp_class_called(aTHX_ role));
    draft = draft_of(aTHX_ channel, (size_t)wanted);
    Newxz(state, 1, draft_state);
    state->draft = draft;
    state->len = (size_t)wanted;
    return object_of(aTHX_ &pwp_draft_class, state);
}

/* Makes a blob of a draft, and frees the draft. */
static SV *frozen(pTHX_ pwk_blob_draft *draft) {
    pwk_blob *blob = NULL;
    pwk_error error;
    pwk_status status = pwk_blob_draft_freeze(draft, &blob, &error);
    pwk_blob_draft_free(draft);
    if (status != PWK_OK) throw_at(aTHX_ status, &error, "blob freeze");
    return object_of(aTHX_ &pwp_blob_class, blob);
}

SV *pwp_reqrep_blob_from(pTHX_ SV *self, int role, SV *bytes) {
    SV *fetched;
    pwk_bytes from = bytes_of(aTHX_ bytes, "blob_from", &fetched);
    pwp_channel *channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    pwk_blob_draft *draft = draft_of(aTHX_ channel, from.len);
    if (from.len) memcpy(pwk_blob_draft_space(draft).data, from.data, from.len);
    return frozen(aTHX_ draft);
}

/* ---------------------------------------------------------------- drafts */

/* The state of a draft that can be used here. Croaks if it was frozen, or is the parent's. */
static draft_state *open_draft(pTHX_ SV *self) {
    draft_state *state = pwp_state(aTHX_ self, &pwp_draft_class);
    const char *name = pwp_called(aTHX_ pwp_draft_class.name);
    if (!state->draft) croak("%s: this draft is frozen: use what freeze returned", name);
    if (!pwk_blob_draft_space(state->draft).data) {
        croak("%s: this draft is the parent's: make another one", name);
    }
    return state;
}

void pwp_draft_write(pTHX_ SV *self, SV *offset, SV *bytes) {
    IV at = pwp_integer(aTHX_ offset);
    SV *fetched;
    pwk_bytes from = bytes_of(aTHX_ bytes, "write", &fetched);
    draft_state *state = open_draft(aTHX_ self);
    /* Before the first byte, this becomes a number that is larger than any length. */
    UV start = at < 0 ? (UV)at + state->len : (UV)at;
    if (start > state->len || from.len > state->len - start) {
        croak("%s->write: %" UVuf " bytes at offset %" IVdf " are outside of a blob of %" UVuf " bytes",
              pwp_called(aTHX_ pwp_draft_class.name), (UV)from.len, at, (UV)state->len);
    }
    if (from.len) memcpy((char *)pwk_blob_draft_space(state->draft).data + start, from.data, from.len);
}

size_t pwp_draft_length(pTHX_ SV *self) {
    draft_state *state = pwp_state(aTHX_ self, &pwp_draft_class);
    return state->len;
}

SV *pwp_draft_freeze(pTHX_ SV *self) {
    draft_state *state = open_draft(aTHX_ self);
    pwk_blob_draft *draft = state->draft;
    state->draft = NULL;
    return frozen(aTHX_ draft);
}

/* ---------------------------------------------------------------- reading blobs */

static pwk_blob *blob_of(pTHX_ SV *self) {
    return pwp_state(aTHX_ self, &pwp_blob_class);
}

size_t pwp_blob_length(pTHX_ SV *self) {
    return pwk_blob_bytes(blob_of(aTHX_ self)).len;
}

SV *pwp_blob_copy(pTHX_ SV *self) {
    pwk_bytes bytes = pwk_blob_bytes(blob_of(aTHX_ self));
    return pwp_string(aTHX_ bytes.data, bytes.len);
}

SV *pwp_blob_substr(pTHX_ SV *self, SV *offset, SV *count) {
    IV start = pwp_integer(aTHX_ offset), wanted = 0, end, len;
    pwk_bytes bytes;
    if (count) count = pwp_number(aTHX_ count);
    if (count && SvOK(count)) wanted = pwp_integer(aTHX_ count);
    else count = NULL;
    bytes = pwk_blob_bytes(blob_of(aTHX_ self));
    len = (IV)bytes.len;
    if (start < 0) start += len;
    if (!count) end = len;
    else if (wanted < 0) end = len + wanted;
    else if (start >= 0 && wanted > len - start) end = len;
    else end = start + wanted;
    if (start > len || (start < 0 && end < 0)) {
        Perl_ck_warner(aTHX_ packWARN(WARN_SUBSTR), "substr outside of string");
        return &PL_sv_undef;
    }
    if (start < 0) start = 0;
    if (end > len) end = len;
    if (end < start) end = start;
    return pwp_string(aTHX_ (const char *)bytes.data + start, (size_t)(end - start));
}

/* ---------------------------------------------------------------- scalars that are a blob's memory */

/*
 * At its end, a program destroys all objects, but no other values. So that the blob is released then,
 * the scalar has an object, its guard. A guard that is freed before its scalar empties the scalar.
 */
static const pwp_class guard_class;
static int free_map(pTHX_ SV *scalar, MAGIC *magic);

#ifdef USE_ITHREADS
#define MAP_VTABLE {NULL, NULL, NULL, NULL, free_map, NULL, pwp_dup_magic, pwp_local_magic}
#else
#define MAP_VTABLE {NULL, NULL, NULL, NULL, free_map, NULL, NULL, pwp_local_magic}
#endif
/* The scalar's class. Its state is a handle of the blob; `mg_obj` of its magic refers to the guard. */
static const pwp_class map_class = {MAP_VTABLE, "", release_blob, share_blob};

/* Called when the scalar is freed before its guard, which then has nothing to do. */
static int free_map(pTHX_ SV *scalar, MAGIC *magic) {
    if (magic->mg_obj) (void)pwp_take(aTHX_ magic->mg_obj, &guard_class);
    return pwp_free_magic(aTHX_ scalar, magic);
}

/* Makes the scalar show these bytes. Without a length of its buffer, Perl neither frees nor shares it. */
static void show(SV *scalar, pwk_bytes bytes) {
    SvPV_set(scalar, (char *)bytes.data);
    SvCUR_set(scalar, bytes.len);
    SvLEN_set(scalar, 0);
}

/* Called when the guard is freed before its scalar. */
static void release_scalar(pTHX_ void *state) {
    SV *scalar = state;
    MAGIC *magic = mg_findext(scalar, PERL_MAGIC_ext, &map_class.vtable);
    show(scalar, (pwk_bytes){"", 0});
    pwk_blob_free((pwk_blob *)magic->mg_ptr);
    magic->mg_ptr = NULL;
}

/*
 * The guard's class. Its state is the scalar. A guard has no state in a new thread, which frees all of its
 * values when it ends.
 */
static const pwp_class guard_class = {PWP_VTABLE, "Pipework::ReqRep::Blob::Guard", release_scalar, share_nothing};

/*
 * Whether a NUL ends what Perl may read of bytes in place. Perl puts one behind each string, and where
 * it converts a text to a number, it reads on until it finds one.
 */
static bool has_nul(pwk_blob *blob, pwk_bytes bytes) {
    const char *end = (const char *)bytes.data + bytes.len;
    /* The byte behind is in the page of the last one, and a file is mapped by pages. */
    bool can_look = PTR2UV(end) % PAGE && !pwk_blob_is_copied(blob);
    return (can_look && !*end) || memchr(bytes.data, 0, bytes.len);
}

SV *pwp_blob_map(pTHX_ SV *self) {
    pwk_blob *blob = blob_of(aTHX_ self), *clone = NULL;
    pwk_bytes bytes = pwk_blob_bytes(blob);
    SV *scalar, *reference;
    MAGIC *magic;
    pwk_error error;
    if (!bytes.len || !has_nul(blob, bytes)) {
        reference = sv_2mortal(newRV_inc(pwp_string(aTHX_ bytes.data, bytes.len)));
        SvREADONLY_on(SvRV(reference));
        return reference;
    }
    if (pwk_blob_clone(blob, &clone, &error) != PWK_OK) pwp_throw(aTHX_ &error);
    scalar = newSV_type(SVt_PVMG);
    reference = sv_2mortal(newRV_noinc(scalar));
    pwp_attach(aTHX_ scalar, &map_class, clone);
    magic = mg_findext(scalar, PERL_MAGIC_ext, &map_class.vtable);
    magic->mg_obj = SvREFCNT_inc(object_of(aTHX_ &guard_class, scalar));
    magic->mg_flags |= MGf_REFCOUNTED;
    show(scalar, bytes);
    SvPOK_only(scalar);
    /* PROTECT: Internals::SvREADONLY cannot change it, either. */
    SvFLAGS(scalar) |= SVf_READONLY | SVf_PROTECT;
    return reference;
}

/* ---------------------------------------------------------------- what this process has of a blob */

bool pwp_blob_is_copied(pTHX_ SV *self) {
    return pwk_blob_is_copied(blob_of(aTHX_ self));
}

void pwp_blob_check(pTHX_ SV *self) {
    pwk_error error;
    pwk_status status = pwk_blob_check(blob_of(aTHX_ self), &error);
    if (status != PWK_OK) throw_at(aTHX_ status, &error, "blob check");
}

/* ---------------------------------------------------------------- the blobs of messages */

static void release_blobs(pTHX_ void *state) {
    pwp_blobs *blobs = state;
    PERL_UNUSED_CONTEXT;
    for (size_t i = 0; i < blobs->count; i++) pwk_blob_free(blobs->sent[i]);
    pwk_blobs_free(&blobs->received);
    Safefree(blobs);
}

static const pwp_class blobs_class = {PWP_VTABLE, "", release_blobs, share_nothing};

pwp_blobs *pwp_blobs_new(pTHX) {
    SV *owner = sv_newmortal();
    pwp_blobs *blobs;
    Newxz(blobs, 1, pwp_blobs);
    SvUPGRADE(owner, SVt_PVMG);
    pwp_attach(aTHX_ owner, &blobs_class, blobs);
    return blobs;
}

static void refuse(pTHX_ SV *given) __attribute__((noreturn));
static void refuse(pTHX_ SV *given) {
    const char *kind = !SvOK(given) ? "undef" : !SvROK(given) ? "a string" : sv_reftype(SvRV(given), TRUE);
    const char *advice = "blob_from($bytes) makes one of a string";
    if (pwp_find(aTHX_ given, &pwp_draft_class)) advice = "freeze it first";
    if (pwp_find(aTHX_ given, &pwp_blob_class)) advice = "write blobs => [$blob]";
    croak("blobs takes a reference to an array of %s objects, not %s: %s",
          pwp_called(aTHX_ pwp_blob_class.name), kind, advice);
}

pwp_blobs *pwp_blobs_given(pTHX_ SV *given) {
    SV *list;
    AV *all;
    pwp_blobs *blobs;
    if (!given) return NULL;
    list = fetched_once(aTHX_ given);
    if (!SvOK(list)) return NULL;
    if (!SvROK(list) || SvTYPE(SvRV(list)) != SVt_PVAV) refuse(aTHX_ list);
    all = (AV *)SvRV(list);
    blobs = pwp_blobs_new(aTHX);
    for (SSize_t i = 0; i <= av_len(all) && blobs->count < C_ARRAY_LENGTH(blobs->sent); i++) {
        SV **place = av_fetch(all, i, 0);
        SV *one = place ? fetched_once(aTHX_ *place) : &PL_sv_undef;
        pwk_blob *blob = pwp_find(aTHX_ one, &pwp_blob_class);
        pwk_error error;
        /* blob_of croaks, and says that the object was destroyed. */
        if (!blob && sv_isobject(one) && sv_derived_from(one, pwp_blob_class.name)) blob = blob_of(aTHX_ one);
        if (!blob) refuse(aTHX_ one);
        if (pwk_blob_clone(blob, &blobs->sent[blobs->count], &error) != PWK_OK) pwp_throw(aTHX_ &error);
        blobs->count++;
    }
    return blobs;
}

pwp_with pwp_with_of(pTHX_ CV *cv, I32 ax, I32 first, I32 items, bool takes_time) {
    enum { TIMEOUT, BLOBS, ALL };
    pwp_named named[ALL] = {{"timeout", NULL}, {"blobs", NULL}};
    bool is_alone = takes_time && (items - first) % 2 == 1;
    I32 skipped = takes_time ? TIMEOUT : BLOBS;
    pwp_with with;
    pwp_take_named(aTHX_ cv, ax, first + is_alone, items, named + skipped, ALL - skipped);
    with.seconds = is_alone ? ST(first) : named[TIMEOUT].value;
    with.blobs = named[BLOBS].value;
    return with;
}

pwk_message pwp_message_of(const pwp_payload *payload, const pwp_blobs *blobs) {
    pwk_message message = {NULL, 0, NULL, 0, 0};
    message.data = pwp_payload_data(payload);
    message.len = payload->bytes.len;
    message.flags = payload->flags;
    if (blobs) {
        message.blobs = blobs->sent;
        message.blob_count = blobs->count;
    }
    return message;
}

SV *pwp_blobs_next(pTHX_ pwp_blobs *blobs, size_t i) {
    pwk_blob *blob = blobs->received.blobs[i];
    blobs->received.blobs[i] = NULL;
    return object_of(aTHX_ &pwp_blob_class, blob);
}

SV *pwp_message_sv(pTHX_ SV *data, pwp_blobs *blobs) {
    HV *fields = newHV();
    SV *message = sv_2mortal(newRV_noinc((SV *)fields));
    AV *all = newAV();
    (void)hv_stores(fields, "blobs", newRV_noinc((SV *)all));
    (void)hv_stores(fields, "data", SvREFCNT_inc(data));
    for (size_t i = 0; i < blobs->received.count; i++) {
        av_push(all, SvREFCNT_inc(pwp_blobs_next(aTHX_ blobs, i)));
    }
    return sv_bless(message, gv_stashpvs("Pipework::ReqRep::Message", GV_ADD));
}
