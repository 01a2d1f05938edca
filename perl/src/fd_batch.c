/* Connections and datagrams by the batch, and the objects that serve them. */
#include "fd.h"

#include <unistd.h>

/* ---------------------------------------------------------------- connections */

static const char *reason(pwk_stopped stopped) {
    switch (stopped) {
        case PWK_STOPPED_WOULD_BLOCK: return "would block";
        case PWK_STOPPED_LIMIT: return "limit";
        case PWK_STOPPED_NO_DESCRIPTORS: return "no descriptors";
        default: return "failed";
    }
}

/* Connections that the program does not have yet. */
typedef struct {
    pwk_connection *next;
    size_t count;
} connections_left;

/* Closes those that could not be put into a tied array. */
static void close_rest(pTHX_ void *left) {
    connections_left *rest = left;
    for (; rest->count > 0; rest->count--) close((rest->next++)->fd);
}

/*
 * Accepts those that wait, `max` at most, and appends them to the arrays. Returns how many it
 * accepted. `stopped` says why there were not more; after PWK_STOPPED_FAILED, $! does.
 */
static UV accept_those(pTHX_ int listener, UV max, AV *fds, AV *peers, pwk_stopped *stopped) {
    pwk_connection connections[64];
    connections_left rest;
    pwk_error error;
    pwk_status status;
    UV all = 0;
    do {
        size_t batch = C_ARRAY_LENGTH(connections);
        if (max - all < batch) batch = max - all;
        status = pwk_fd_accept_many(listener, connections, batch, &rest.count, stopped, &error);
        if (status != PWK_OK) {
            (void)pwp_fd_ended(aTHX_ status, &error, all);
            *stopped = PWK_STOPPED_FAILED;
            return all;
        }
        all += rest.count;
        rest.next = connections;
        ENTER;
        SAVEDESTRUCTOR_X(close_rest, &rest);
        while (rest.count > 0) {
            pwk_connection *new = rest.next;
            av_push(fds, newSViv(pwp_fd_made(aTHX_ new->fd, false)));
            rest.next++;
            rest.count--;
            av_push(peers, SvREFCNT_inc(pwp_fd_address(aTHX_ &new->peer, new->peer_len)));
        }
        LEAVE;
        /* After PWK_STOPPED_FAILED the next call says why. */
    } while ((*stopped == PWK_STOPPED_LIMIT && all < max) || *stopped == PWK_STOPPED_FAILED);
    return all;
}

const char *pwp_fd_accept_many(pTHX_ SV *listener, SV *max, AV *fds, AV *peers) {
    pwk_stopped stopped;
    UV most;
    int number;
    if (!pwp_fd_number(aTHX_ listener, "accept_many", &number)) return NULL;
    most = pwp_count(aTHX_ max);
    (void)accept_those(aTHX_ number, most, fds, peers, &stopped);
    return reason(stopped);
}

/* An array behind a reference, to be appended to, held. */
static AV *array(pTHX_ SV *reference) {
    SvGETMAGIC(reference);
    if (!SvROK(reference) || SvTYPE(SvRV(reference)) != SVt_PVAV) {
        croak("%s::accept_multiple takes two arrays and a listener",
              pwp_called(aTHX_ "Pipework::FD"));
    }
    pwp_must_be_writable(aTHX_ SvRV(reference));
    return (AV *)pwp_keep(aTHX_ SvRV(reference));
}

IV pwp_fd_accept_multiple(pTHX_ SV *fds, SV *peers, SV *listener) {
    pwk_stopped stopped;
    UV all;
    int number;
    AV *numbers, *addresses;
    if (!pwp_fd_number(aTHX_ listener, "accept_multiple", &number)) return PWP_FD_UNDEF;
    numbers = array(aTHX_ fds);
    addresses = array(aTHX_ peers);
    all = accept_those(aTHX_ number, UV_MAX, numbers, addresses, &stopped);
    if (stopped != PWK_STOPPED_FAILED) {
        errno = stopped == PWK_STOPPED_NO_DESCRIPTORS ? EMFILE : EAGAIN;
    }
    return all ? (IV)all : PWP_FD_UNDEF;
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
