/* Channels: the state behind an object, shared by threads and by calls in progress. */
#include "reqrep.h"

static void *share(pTHX_ void *channel) {
    return pwp_channel_hold(channel);
}

#define CLASS(name) {PWP_VTABLE, name, pwp_channel_release, share}
const pwp_class pwp_reqrep_classes[4] = {
    CLASS("Pipework::ReqRep"),
    CLASS("Pipework::ReqRep::Client"),
    CLASS("Pipework::ReqRep::Int"),
    CLASS("Pipework::ReqRep::Int::Client"),
};

const char *pwp_class_called(pTHX_ int role) {
    return pwp_called(aTHX_ pwp_reqrep_classes[role].name);
}

/* Defines a function once more, in another class. */
static void give(pTHX_ CV *of, int role) {
    const char *name = Perl_form(aTHX_ "%s::%s", pwp_reqrep_classes[role].name, GvNAME(CvGV(of)));
    CV *copy;
    if (get_cv(name, 0)) return;
    copy = newXS(name, CvXSUB(of), CvFILE(of));
    CvXSUBANY(copy).any_i32 = role;
}

static bool is_one_of(const char *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strEQ(name, names[i])) return true;
    }
    return false;
}

/* Gives the functions of a class to its class of integers. */
static void give_to_int(pTHX_ int role) {
    static const char *const only_strings[] = {"part", "flush", "stream"};
    HV *stash = gv_stashpv(pwp_reqrep_classes[role].name, GV_ADD);
    SV *entry;
    char *name;
    I32 len;
    hv_iterinit(stash);
    while ((entry = hv_iternextsv(stash, &name, &len))) {
        CV *of = isGV_with_GP(entry) ? GvCV((GV *)entry) : NULL;
        if (!of || !CvISXSUB(of)) continue;
        CvXSUBANY(of).any_i32 = role;
        if (!is_one_of(name, only_strings, C_ARRAY_LENGTH(only_strings))) give(aTHX_ of, role | 2);
    }
}

void pwp_reqrep_share(pTHX) {
    static const char *const of_all[] = {
        "open",       "new_from_fd", "DESTROY", "size",  "is_empty", "capacity",
        "resp_slots", "resp_size",   "path",    "memfd", "stats",    "audit",
        "geometry",   "members",     "recover", "_doorbell", "blob", "blob_from",
    };
    for (size_t i = 0; i < C_ARRAY_LENGTH(of_all); i++) {
        give(aTHX_ get_cv(Perl_form(aTHX_ "Pipework::ReqRep::%s", of_all[i]), 0), PWP_CLIENT);
    }
    give_to_int(aTHX_ PWP_SERVER);
    give_to_int(aTHX_ PWP_CLIENT);
}

pwp_channel *pwp_channel_new(pTHX_ pwk_segment *segment) {
    /* Not an interpreter's own memory: threads share it. */
    pwp_channel *channel = PerlMemShared_calloc(1, sizeof *channel);
    if (!channel) {
        pwk_segment_free(segment);
        croak("Out of memory");
    }
    channel->owners = 1;
    channel->segment = segment;
    pwk_segment_geometry(segment, &channel->geometry, sizeof channel->geometry, NULL);
    MUTEX_INIT(&channel->changing);
    pwk_client_options_init(&channel->terms, sizeof channel->terms);
    channel->requests = channel->replies = (pwp_bell){-1, -1, NULL};
    return channel;
}

pwp_channel *pwp_channel_hold(pwp_channel *channel) {
    __atomic_add_fetch(&channel->owners, 1, __ATOMIC_RELAXED);
    return channel;
}

void pwp_channel_release(pTHX_ void *state) {
    pwp_channel *channel = state;
    /* The last one sees what the others did. */
    if (__atomic_sub_fetch(&channel->owners, 1, __ATOMIC_ACQ_REL) > 0) return;
    /* Servers carry out sent requests, although no client waits for the replies. */
    if (channel->client) pwk_client_forget_all(channel->client);
    pwk_client_free(channel->client);
    pwk_server_free(channel->server);
    pwp_bell_free(&channel->requests);
    pwp_bell_free(&channel->replies);
    pwk_segment_free(channel->segment);
    MUTEX_DESTROY(&channel->changing);
    PerlMemShared_free(channel);
}

/* All places for members being taken is no reason to come back soon, as PWK_WOULD_BLOCK is. */
static pwk_status joined(pwk_status status, pwk_error *error) {
    if (status != PWK_WOULD_BLOCK) return status;
    error->os = EUSERS;
    return error->kind = PWK_OS;
}

pwk_status pwp_attach_client(pTHX_ pwp_channel *channel, pwk_client **client, pwk_error *error) {
    pwk_status status = PWK_OK;
    /* Acquire: pairs with the Release of the thread that attached. */
    *client = __atomic_load_n(&channel->client, __ATOMIC_ACQUIRE);
    if (*client) return PWK_OK;
    MUTEX_LOCK(&channel->changing);
    *client = channel->client;
    if (!*client) status = pwk_client_new(channel->segment, &channel->terms, client, error);
    if (status == PWK_OK) __atomic_store_n(&channel->client, *client, __ATOMIC_RELEASE);
    MUTEX_UNLOCK(&channel->changing);
    return joined(status, error);
}

pwk_status pwp_attach_server(pTHX_ pwp_channel *channel, pwk_server **server, pwk_error *error) {
    pwk_status status = PWK_OK;
    *server = __atomic_load_n(&channel->server, __ATOMIC_ACQUIRE);
    if (*server) return PWK_OK;
    MUTEX_LOCK(&channel->changing);
    *server = channel->server;
    if (!*server) status = pwk_server_new(channel->segment, NULL, server, error);
    if (status == PWK_OK) __atomic_store_n(&channel->server, *server, __ATOMIC_RELEASE);
    MUTEX_UNLOCK(&channel->changing);
    return joined(status, error);
}

pwp_subject pwp_subject_of(pTHX_ SV *self, int role) {
    pwp_subject subject;
    subject.self = self;
    subject.kind = &pwp_reqrep_classes[role];
    subject.channel = pwp_state(aTHX_ self, subject.kind);
    return subject;
}

pwp_channel *pwp_channel_again(pTHX_ const pwp_subject *subject) {
    if (pwp_find(aTHX_ subject->self, subject->kind) != subject->channel) {
        croak("Attempted to use a destroyed %s object", pwp_called(aTHX_ subject->kind->name));
    }
    return subject->channel;
}

void pwp_name_failure(pwk_status status, pwk_error *error, const char *op) {
    if (status == PWK_WOULD_BLOCK) Zero(error, 1, pwk_error);
    error->kind = status;
    if (!*error->op || strncmp(error->op, "pwk_", 4) == 0) {
        my_strlcpy(error->op, op, sizeof error->op);
    }
}

SV *pwp_id_sv(pTHX_ uint64_t id) {
    return sv_2mortal(newSVuv(id));
}
