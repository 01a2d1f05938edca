/* Many connections at once. */
#include "fd.h"

#include <sys/socket.h>
#include <unistd.h>

#define AT_ONCE 64

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

/* Connections that the program does not have yet. */
typedef struct {
    pwk_connection *next;
    size_t count;
} connections_left;

/* What could not be put into a tied array is closed. */
static void close_rest(pTHX_ void *left) {
    connections_left *rest = left;
    for (; rest->count > 0; rest->count--) close((rest->next++)->fd);
}

IV pwp_fd_accept_multiple(pTHX_ SV *fds, SV *peers, SV *listener) {
    pwk_connection connections[AT_ONCE];
    pwk_error error;
    pwk_stopped stopped;
    connections_left rest;
    size_t count;
    IV all = 0;
    int number;
    AV *numbers, *addresses;
    if (!pwp_fd_number(aTHX_ listener, "accept_multiple", &number)) return PWP_FD_UNDEF;
    numbers = array(aTHX_ fds);
    addresses = array(aTHX_ peers);
    do {
        if (pwk_fd_accept_many(number, connections, AT_ONCE, &count, &stopped, &error) != PWK_OK) {
            pwp_failed(aTHX_ &error);
            return all ? all : PWP_FD_UNDEF;
        }
        rest.next = connections;
        rest.count = count;
        ENTER;
        SAVEDESTRUCTOR_X(close_rest, &rest);
        while (rest.count > 0) {
            pwk_connection *new = rest.next;
            pwp_fd_made(aTHX_ new->fd, false);
            av_push(numbers, newSViv(new->fd));
            rest.next++;
            rest.count--;
            av_push(addresses, SvREFCNT_inc(pwp_fd_address(aTHX_ &new->peer, new->peer_len)));
        }
        LEAVE;
        all += (IV)count;
        /* After PWK_STOPPED_FAILED the next call says why. */
    } while (stopped == PWK_STOPPED_LIMIT || stopped == PWK_STOPPED_FAILED);
    errno = stopped == PWK_STOPPED_NO_DESCRIPTORS ? EMFILE : EAGAIN;
    return all ? all : PWP_FD_UNDEF;
}
