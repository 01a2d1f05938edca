/* Makes objects of module reqrep, and removes names. */
#include "reqrep.h"

#include <sys/stat.h>

/* Payloads of a segment up to this size are reserved when it is made. */
#define RESERVED_BYTES (4u << 20)

/* Attaches the channel to a new object of the class that the constructor was called on. */
static SV *bless_into(pTHX_ SV *class, int role, pwk_segment *segment) {
    SV *object = newSV(0);
    SV *reference = sv_2mortal(newRV_noinc(object));
    pwp_attach(aTHX_ object, &pwp_reqrep_classes[role], pwp_channel_new(aTHX_ segment));
    return sv_bless(reference, pwp_stash(aTHX_ class));
}

/* Croaks as "CLASS->new: PATH: why", and leaves $! as the failure's number. */
static void refuse(pTHX_ int role, const char *method, const char *path, const pwk_error *error)
    __attribute__((noreturn));
static void refuse(pTHX_ int role, const char *method, const char *path, const pwk_error *error) {
    const char *name = pwp_class_called(aTHX_ role);
    const char *colon = path ? ": " : "";
    const char *text = SvPV_nolen(pwp_error_text(aTHX_ error));
    path = path ? path : "";
    pwp_failed(aTHX_ error);
    if (error->kind == PWK_OS && error->os > 0) {
        croak("%s->%s: %s%s%s", name, method, path, colon, Strerror(error->os));
    }
    if (error->kind == PWK_INCOMPATIBLE || error->kind == PWK_CORRUPT) {
        croak("%s->%s: %s%sinvalid or incompatible (%s)", name, method, path, colon, text);
    }
    croak("%s->%s: %s%s%s", name, method, path, colon, text);
}

/* A segment that was opened must be of the kind that the class is for. */
static pwk_status check_kind(int role, pwk_segment **segment, pwk_error *error) {
    pwk_geometry geometry;
    pwk_status status = pwk_segment_geometry(*segment, &geometry, sizeof geometry, error);
    if (status == PWK_OK && pwp_is_of_integers(&geometry) == !!PWP_IS_INT(role)) return PWK_OK;
    pwk_segment_free(*segment);
    *segment = NULL;
    if (status == PWK_OK) {
        memset(error, 0, sizeof *error);
        error->kind = status = PWK_INCOMPATIBLE;
        strcpy(error->op, "reqrep open: integers");
    }
    return status;
}

/* A size or a number, which fits into 32 bits and is not PWK_UNSET. */
static uint32_t size_of(pTHX_ SV *fetched, int role, const char *method, const char *name) {
    NV wanted = pwp_real(aTHX_ fetched);
    if (!(wanted >= 0 && wanted < (NV)PWK_UNSET)) {
        croak("%s->%s: %s must be from 0 to %u", pwp_class_called(aTHX_ role), method, name,
              (unsigned)(PWK_UNSET - 1));
    }
    return (uint32_t)wanted;
}

/* Sets a size that was given; undef leaves the default. */
static void set_size(pTHX_ SV *given, int role, const char *method, const char *name,
                     uint32_t *size) {
    SV *number = given ? pwp_number(aTHX_ given) : NULL;
    if (number && SvOK(number)) *size = size_of(aTHX_ number, role, method, name);
}

/* Sets a number of bytes that was given, which may be any; infinity is no limit. */
static void set_bytes(pTHX_ SV *given, int role, const char *method, const char *name,
                      uint64_t *bytes) {
    SV *number = given ? pwp_number(aTHX_ given) : NULL;
    NV wanted;
    if (!number || !SvOK(number)) return;
    wanted = pwp_real(aTHX_ number);
    if (!(wanted >= 0)) croak("%s->%s: %s must be 0 or more", pwp_class_called(aTHX_ role), method, name);
    *bytes = wanted < 0x1p63 ? (uint64_t)wanted : UINT64_MAX;
}

static void set_mode(pTHX_ SV *given, int role, const char *method, uint32_t *mode) {
    set_size(aTHX_ given, role, method, "mode", mode);
    if (*mode > 0777 || (*mode & 0600) != 0600) {
        croak("%s->%s: mode %o does not let its owner read and write, or is above 777",
              pwp_class_called(aTHX_ role), method, (unsigned)*mode);
    }
}

/* As the original says it, with the rest decided by this library: see COMPAT.md. */
static void options_of(pTHX_ const pwp_sizes *sizes, int role, const char *method,
                       pwk_segment_options *options) {
    uint32_t size = 0;
    uint64_t arena;
    pwk_segment_options_init(options, sizeof *options);
    options->queue = size_of(aTHX_ sizes->req_cap, role, method, "req_cap");
    options->slots = size_of(aTHX_ sizes->resp_slots, role, method, "resp_slots");
    options->members = 1024;
    set_mode(aTHX_ sizes->mode, role, method, &options->mode);
    if (PWP_IS_INT(role)) {
        options->request_bytes = options->reply_bytes = PWP_INT_BYTES;
        return;
    }
    options->reply_bytes = size_of(aTHX_ sizes->resp_size, role, method, "resp_size");
    set_size(aTHX_ sizes->arena, role, method, "arena", &size);
    arena = size ? size : (uint64_t)options->queue * 256;
    if (arena < 4096) arena = 4096;
    if (arena > 1u << 30) arena = 1u << 30;
    options->request_bytes = (uint32_t)arena;
    options->sparse = options->slots * (arena + options->reply_bytes) > RESERVED_BYTES;
}

static pwp_sizes fetched(pTHX_ const pwp_sizes *sizes) {
    pwp_sizes all = *sizes;
    SV **const each[] = {&all.req_cap, &all.resp_slots, &all.resp_size, &all.arena, &all.mode};
    for (size_t i = 0; i < C_ARRAY_LENGTH(each); i++) {
        if (*each[i]) *each[i] = pwp_number(aTHX_ *each[i]);
    }
    return all;
}

/* Opens an existing segment of any sizes, or makes one of these. */
static pwk_status open_or_create(const char *path, const pwk_segment_options *options,
                                 pwk_segment **segment, pwk_error *error) {
    pwk_status status;
    /* Others may make and remove one at the same time. */
    for (int i = 0; i < 16; i++) {
        status = pwk_segment_open_or_create(path, options, segment, error);
        if (status != PWK_INCOMPATIBLE) break;
        /* One of other sizes is opened as well. */
        status = pwk_segment_open(path, NULL, segment, error);
        if (status != PWK_OS || error->os != ENOENT) break;
    }
    return status;
}

SV *pwp_reqrep_new(pTHX_ SV *class, int role, SV *path, const pwp_sizes *given) {
    pwk_segment_options options;
    pwk_segment *segment = NULL;
    pwk_error error;
    pwk_status status;
    const char *at = NULL;
    pwp_sizes sizes;
    path = pwp_fetch(aTHX_ path);
    sizes = fetched(aTHX_ given);
    options_of(aTHX_ &sizes, role, "new", &options);
    if (SvOK(path)) {
        at = pwp_path(aTHX_ path, "new");
        status = open_or_create(at, &options, &segment, &error);
        if (status == PWK_OK) status = check_kind(role, &segment, &error);
    } else {
        status = pwk_segment_anonymous(&options, &segment, &error);
    }
    if (status != PWK_OK) refuse(aTHX_ role, "new", at, &error);
    return bless_into(aTHX_ class, role, segment);
}

SV *pwp_reqrep_new_memfd(pTHX_ SV *class, int role, SV *name, const pwp_sizes *given) {
    pwk_segment_options options;
    pwk_segment *segment = NULL;
    pwk_error error;
    pwp_sizes sizes;
    name = sv_mortalcopy(pwp_fetch(aTHX_ name));
    sizes = fetched(aTHX_ given);
    options_of(aTHX_ &sizes, role, "new_memfd", &options);
    if (SvOK(name)) sv_utf8_upgrade_nomg(name);
    if (pwk_segment_memfd(SvOK(name) ? pwp_path(aTHX_ name, "new_memfd") : "", &options, &segment,
                          &error) != PWK_OK) {
        refuse(aTHX_ role, "new_memfd", NULL, &error);
    }
    return bless_into(aTHX_ class, role, segment);
}

/* ---------------------------------------------------------------- opening */

/* Opens the segment at a path, or else behind a descriptor; both are fetched. Croaks if it cannot. */
static pwk_segment *opened(pTHX_ int role, const char *method, SV *path, SV *fd,
                           const pwk_segment_options *options) {
    pwk_segment *segment = NULL;
    pwk_error error;
    pwk_status status;
    const char *at = path ? pwp_path(aTHX_ path, method) : NULL;
    if (path) {
        status = pwk_segment_open(at, options, &segment, &error);
    } else {
        IV number = SvOK(fd) && looks_like_number(fd) ? SvIV_nomg(fd) : -1;
        if (number < 0 || number > INT_MAX) {
            croak("%s->%s: invalid descriptor", pwp_class_called(aTHX_ role), method);
        }
        status = pwk_segment_from_fd((int)number, PWK_FD_DUP, options, &segment, &error);
    }
    if (status == PWK_OK) status = check_kind(role, &segment, &error);
    if (status != PWK_OK) {
        /* A descriptor may be of any file, a pipe or a directory. */
        if (fd && error.kind == PWK_INVALID) error.kind = PWK_INCOMPATIBLE;
        refuse(aTHX_ role, method, at, &error);
    }
    return segment;
}

SV *pwp_reqrep_new_client(pTHX_ SV *class, int role, SV *path) {
    path = pwp_fetch(aTHX_ path);
    return bless_into(aTHX_ class, role, opened(aTHX_ role, "new", path, NULL, NULL));
}

SV *pwp_reqrep_new_from_fd(pTHX_ SV *class, int role, SV *fd) {
    fd = pwp_fetch(aTHX_ fd);
    return bless_into(aTHX_ class, role, opened(aTHX_ role, "new_from_fd", NULL, fd, NULL));
}

/* ---------------------------------------------------------------- with named arguments */

/* The value of a named argument, fetched; NULL if it was not given, or is undef. */
static SV *value_of(pTHX_ const pwp_named *given) {
    SV *value = given->value ? pwp_fetch(aTHX_ given->value) : NULL;
    return value && SvOK(value) ? value : NULL;
}

static bool is_true(pTHX_ const pwp_named *given) {
    SV *value = value_of(aTHX_ given);
    return value && SvTRUE_nomg(value);
}

SV *pwp_reqrep_create(pTHX_ CV *cv, I32 ax, I32 items, SV *class, int role, bool or_open) {
    enum {
        PATH, MODE, SLOTS, QUEUE, MEMBERS, SPARSE, BLOBS, BLOB_POOL, BLOB_LIMIT, REQUEST_BYTES, REPLY_BYTES, ALL
    };
    pwp_named given[ALL] = {
        {"path", NULL},          {"mode", NULL},        {"slots", NULL}, {"queue", NULL},
        {"members", NULL},       {"sparse", NULL},      {"blobs", NULL}, {"blob_pool", NULL},
        {"blob_limit", NULL},    {"request_bytes", NULL}, {"reply_bytes", NULL},
    };
    const char *method = or_open ? "open_or_create" : "create";
    pwk_segment_options options;
    uint32_t *const sizes[ALL] = {
        [SLOTS] = &options.slots, [QUEUE] = &options.queue, [MEMBERS] = &options.members,
        [REQUEST_BYTES] = &options.request_bytes, [REPLY_BYTES] = &options.reply_bytes,
        [BLOBS] = &options.blobs,
    };
    pwk_segment *segment = NULL;
    pwk_error error;
    pwk_status status;
    SV *path;
    const char *at = NULL;
    /* Those of integers have their sizes. */
    pwp_take_named(aTHX_ cv, ax, 1, items, given, PWP_IS_INT(role) ? REQUEST_BYTES : ALL);
    pwk_segment_options_init(&options, sizeof options);
    path = value_of(aTHX_ &given[PATH]);
    set_mode(aTHX_ given[MODE].value, role, method, &options.mode);
    for (int i = 0; i < ALL; i++) {
        if (sizes[i]) set_size(aTHX_ given[i].value, role, method, given[i].name, sizes[i]);
    }
    options.sparse = is_true(aTHX_ &given[SPARSE]);
    set_bytes(aTHX_ given[BLOB_POOL].value, role, method, "blob_pool", &options.blob_pool);
    set_bytes(aTHX_ given[BLOB_LIMIT].value, role, method, "blob_limit", &options.blob_limit);
    if (PWP_IS_INT(role)) {
        options.request_bytes = options.reply_bytes = PWP_INT_BYTES;
    } else if (options.request_bytes == PWP_INT_BYTES && options.reply_bytes == PWP_INT_BYTES) {
        croak("%s->%s: requests and replies of 8 bytes are integers, which %s::Int is for",
              pwp_class_called(aTHX_ role), method, pwp_class_called(aTHX_ role));
    }
    if (path) at = pwp_path(aTHX_ path, method);
    else if (or_open) croak("%s->%s: path is missing", pwp_class_called(aTHX_ role), method);
    status = !at       ? pwk_segment_anonymous(&options, &segment, &error)
             : or_open ? pwk_segment_open_or_create(at, &options, &segment, &error)
                       : pwk_segment_create(at, &options, &segment, &error);
    if (status == PWK_OK) status = check_kind(role, &segment, &error);
    if (status != PWK_OK) refuse(aTHX_ role, method, at, &error);
    return bless_into(aTHX_ class, role, segment);
}

SV *pwp_reqrep_open(pTHX_ CV *cv, I32 ax, I32 items, SV *class, int role) {
    enum { PATH, FD, ANY_OWNER, BLOB_POOL, BLOB_LIMIT, REDELIVERIES, NEEDS_SERVER, ALL };
    pwp_named given[ALL] = {
        {"path", NULL},       {"fd", NULL},           {"any_owner", NULL},    {"blob_pool", NULL},
        {"blob_limit", NULL}, {"redeliveries", NULL}, {"needs_server", NULL},
    };
    const char *name = pwp_class_called(aTHX_ role);
    uint32_t redeliveries = 0;
    pwk_segment_options options;
    bool needs_server;
    SV *path, *fd, *object;
    pwp_channel *channel;
    pwp_take_named(aTHX_ cv, ax, 1, items, given, PWP_IS_CLIENT(role) ? ALL : REDELIVERIES);
    path = value_of(aTHX_ &given[PATH]);
    fd = value_of(aTHX_ &given[FD]);
    pwk_segment_options_init(&options, sizeof options);
    options.any_owner = is_true(aTHX_ &given[ANY_OWNER]);
    set_bytes(aTHX_ given[BLOB_POOL].value, role, "open", "blob_pool", &options.blob_pool);
    set_bytes(aTHX_ given[BLOB_LIMIT].value, role, "open", "blob_limit", &options.blob_limit);
    needs_server = is_true(aTHX_ &given[NEEDS_SERVER]);
    set_size(aTHX_ given[REDELIVERIES].value, role, "open", "redeliveries", &redeliveries);
    if (redeliveries > 3) croak("%s->open: at most 3 redeliveries", name);
    if (!path == !fd) croak("%s->open: either path or fd, and one of them", name);
    object = bless_into(aTHX_ class, role, opened(aTHX_ role, "open", path, fd, &options));
    channel = pwp_state(aTHX_ object, &pwp_reqrep_classes[role]);
    channel->terms.redeliveries = (uint8_t)redeliveries;
    channel->terms.needs_server = needs_server;
    return object;
}

/* ---------------------------------------------------------------- names */

void pwp_reqrep_unlink(pTHX_ SV *self, int role, SV *path) {
    const char *name = pwp_class_called(aTHX_ role);
    pwk_error error;
    if (path) path = pwp_fetch(aTHX_ path);
    if (SvROK(self)) {
        pwp_channel *channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
        if (!pwk_segment_path(channel->segment)) croak("cannot unlink anonymous or memfd channel");
        if (pwk_segment_unlink(channel->segment, NULL, &error) == PWK_OK) return;
        if (error.kind == PWK_OS && error.os == ENOENT) return;
        refuse(aTHX_ role, "unlink", pwk_segment_path(channel->segment), &error);
    }
    if (!path || !SvOK(path)) croak("Usage: %s->unlink($path)", name);
    if (unlink(pwp_path(aTHX_ path, "unlink")) != 0 && errno != ENOENT) {
        croak("%s->unlink: %s: %s", name, SvPV_nolen(path), Strerror(errno));
    }
}
