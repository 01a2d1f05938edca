/* Connections and datagrams by the batch, and the objects that serve them. */
#include "fd.h"

/* ---------------------------------------------------------------- connections */

static const char *reason(pwk_stopped stopped) {
    switch (stopped) {
        case PWK_STOPPED_WOULD_BLOCK: return "would block";
        case PWK_STOPPED_LIMIT: return "limit";
        case PWK_STOPPED_NO_DESCRIPTORS: return "no descriptors";
        default: return "failed";
    }
}

const char *pwp_fd_accept_many(pTHX_ SV *listener, SV *max, AV *fds, AV *peers) {
    pwk_connection connections[64];
    pwk_error error;
    pwk_stopped stopped;
    size_t count, i;
    UV left;
    int number;
    if (!pwp_fd_number(aTHX_ listener, "accept_many", &number)) return NULL;
    left = pwp_count(aTHX_ max);
    do {
        size_t batch = left < C_ARRAY_LENGTH(connections) ? left : C_ARRAY_LENGTH(connections);
        pwk_status status =
            pwk_fd_accept_many(number, connections, batch, &count, &stopped, &error);
        if (status != PWK_OK) {
            (void)pwp_fd_ended(aTHX_ status, &error, (uint64_t)(av_top_index(fds) + 1));
            return reason(PWK_STOPPED_FAILED);
        }
        for (i = 0; i < count; i++) {
            pwk_connection *new = &connections[i];
            av_push(fds, newSViv(pwp_fd_made(aTHX_ new->fd, false)));
            av_push(peers, SvREFCNT_inc(pwp_fd_address(aTHX_ &new->peer, new->peer_len)));
        }
        left -= batch;
    } while ((stopped == PWK_STOPPED_LIMIT && left > 0) || stopped == PWK_STOPPED_FAILED);
    return reason(stopped);
}

static void release_reserve(pTHX_ void *state) {
    pwk_reserve_free(state);
}

/* A new thread makes its own. */
static void *share_nothing(pTHX_ void *state) {
    return NULL;
}

const pwp_class pwp_fd_reserve = {
    PWP_VTABLE, "Pipework::FD::Reserve", release_reserve, share_nothing,
};

SV *pwp_fd_reserve_new(pTHX_ SV *class) {
    HV *stash = pwp_stash(aTHX_ pwp_fetch(aTHX_ class));
    pwk_error error;
    pwk_reserve *reserve;
    SV *object;
    if (pwk_reserve_new(&reserve, &error) != PWK_OK) {
        pwp_failed(aTHX_ &error);
        return NULL;
    }
    object = sv_2mortal(newRV_noinc(newSV(0)));
    pwp_attach(aTHX_ SvRV(object), &pwp_fd_reserve, reserve);
    return sv_bless(object, stash);
}

IV pwp_fd_reserve_shed(pTHX_ SV *self, SV *listener, SV *max) {
    pwk_error error;
    pwk_stopped stopped;
    size_t count = 0;
    UV most;
    int number;
    pwk_status status;
    if (!pwp_fd_number(aTHX_ listener, "Reserve::shed", &number)) return PWP_FD_UNDEF;
    most = pwp_count(aTHX_ max);
    status = pwk_reserve_shed(pwp_state(aTHX_ self, &pwp_fd_reserve), number, most, &count, &stopped,
                              &error);
    return pwp_fd_ended(aTHX_ status, &error, count);
}

/* ---------------------------------------------------------------- datagrams */

static void release_inbox(pTHX_ void *state) {
    pwk_inbox_free(state);
}

const pwp_class pwp_fd_inbox = {
    PWP_VTABLE, "Pipework::FD::Inbox", release_inbox, share_nothing,
};

SV *pwp_fd_inbox_new(pTHX_ SV *class, SV *max, SV *max_bytes) {
    HV *stash = pwp_stash(aTHX_ pwp_fetch(aTHX_ class));
    pwk_error error;
    pwk_inbox *inbox;
    SV *object;
    UV most, bytes;
    most = pwp_count(aTHX_ max);
    bytes = pwp_count(aTHX_ max_bytes);
    if (pwk_inbox_new(most, bytes, &inbox, &error) != PWK_OK) {
        pwp_failed(aTHX_ &error);
        return NULL;
    }
    object = sv_2mortal(newRV_noinc(newSV(0)));
    pwp_attach(aTHX_ SvRV(object), &pwp_fd_inbox, inbox);
    return sv_bless(object, stash);
}

typedef struct {
    SV *self;
    int socket;
    size_t count;
} inbox_arguments;

static pwk_status receive(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    inbox_arguments *of = arguments;
    pwk_inbox *inbox = pwp_state(aTHX_ of->self, &pwp_fd_inbox);
    return pwk_inbox_recv(inbox, of->socket, until, &of->count, error);
}

IV pwp_fd_inbox_recv(pTHX_ SV *self, SV *socket, SV *seconds) {
    inbox_arguments arguments = {self, -1, 0};
    pwk_deadline deadline;
    pwk_error error;
    pwk_status status;
    if (!pwp_fd_number(aTHX_ socket, "Inbox::recv", &arguments.socket)) return PWP_FD_UNDEF;
    deadline = pwp_deadline(aTHX_ seconds);
    status = pwp_wait(aTHX_ &arguments.self, receive, &arguments, deadline, &error);
    return pwp_fd_ended(aTHX_ status, &error, status == PWK_OK ? arguments.count : 0);
}

bool pwp_fd_inbox_get(pTHX_ SV *self, SV *i, pwk_datagram *datagram) {
    pwk_error error;
    UV which;
    which = pwp_count(aTHX_ i);
    if (pwk_inbox_get(pwp_state(aTHX_ self, &pwp_fd_inbox), which, datagram, &error) == PWK_OK) {
        return true;
    }
    pwp_failed(aTHX_ &error);
    return false;
}

typedef struct {
    int socket;
    const pwk_datagram *datagrams;
    size_t count, done;
} send_arguments;

static pwk_status send_some(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    send_arguments *of = arguments;
    pwk_status status = pwk_fd_send_many(of->socket, of->datagrams + of->done, of->count - of->done,
                                         until, error);
    of->done = status == PWK_OK ? of->count : of->done + error->done;
    return status;
}

/* One element of the list: bytes, or bytes and an address. Perl code may run. */
static pwk_datagram datagram_of(pTHX_ SV *element) {
    pwk_datagram datagram = {NULL, 0, NULL, 0, false};
    SV *data = element;
    pwk_bytes bytes;
    if (SvROK(element) && SvTYPE(SvRV(element)) == SVt_PVAV && !SvOBJECT(SvRV(element))) {
        AV *pair = (AV *)pwp_keep(aTHX_ SvRV(element));
        SV **first = av_fetch(pair, 0, 0);
        SV **second = av_fetch(pair, 1, 0);
        /* To look at one may take the other out of the pair. */
        data = first ? pwp_keep(aTHX_ *first) : &PL_sv_undef;
        if (second) {
            SV *address = sv_mortalcopy(pwp_keep(aTHX_ *second));
            if (SvOK(address)) {
                bytes = pwp_bytes(aTHX_ address, "send_many");
                datagram.address = bytes.data;
                datagram.address_len = (socklen_t)bytes.len;
            }
        }
    }
    /* A handler may change the caller's. */
    bytes = pwp_bytes(aTHX_ sv_mortalcopy(data), "send_many");
    datagram.data = bytes.data;
    datagram.len = bytes.len;
    return datagram;
}

IV pwp_fd_send_many(pTHX_ SV *socket, SV *list, SV *seconds) {
    send_arguments arguments = {-1, NULL, 0, 0};
    pwk_datagram *datagrams;
    pwk_error error;
    pwk_status status;
    pwk_deadline deadline;
    SSize_t i, count;
    AV *elements;
    if (!pwp_fd_number(aTHX_ socket, "send_many", &arguments.socket)) return PWP_FD_UNDEF;
    SvGETMAGIC(list);
    if (!SvROK(list) || SvTYPE(SvRV(list)) != SVt_PVAV) {
        croak("send_many takes a reference to an array of datagrams");
    }
    elements = (AV *)pwp_keep(aTHX_ SvRV(list));
    count = av_top_index(elements) + 1;
    pwp_must_fit(aTHX_ (size_t)(count + 1) * sizeof *datagrams);
    datagrams = (pwk_datagram *)SvPVX(sv_2mortal(newSV((STRLEN)(count + 1) * sizeof *datagrams)));
    for (i = 0; i < count; i++) {
        SV **element = av_fetch(elements, i, 0);
        datagrams[i] = datagram_of(aTHX_ element ? pwp_fetch(aTHX_ *element) : &PL_sv_undef);
    }
    deadline = pwp_deadline(aTHX_ seconds);
    arguments.datagrams = datagrams;
    arguments.count = (size_t)count;
    status = pwp_wait(aTHX_ NULL, send_some, &arguments, deadline, &error);
    return pwp_fd_ended(aTHX_ status, &error, arguments.done);
}
