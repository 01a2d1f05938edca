/* Eventfds that are rung by hand, and the doorbells, which the library rings. */
#include "reqrep.h"

pwp_bell *pwp_request_bell(pwp_channel *channel) {
    return &channel->requests;
}

pwp_bell *pwp_reply_bell(pwp_channel *channel) {
    return &channel->replies;
}

/* Makes its handle, when it is first used. Under `changing`. */
static pwk_status hold(pwp_bell *bell, pwk_error *error) {
    return bell->held ? PWK_OK : pwk_eventfd_new(&bell->held, error);
}

/* Its handle, which stays the same once there is one; NULL if there is none. */
static pwk_eventfd *held(pwp_channel *channel, pwp_bell *(*which)(pwp_channel *)) {
    pwk_eventfd *eventfd;
    MUTEX_LOCK(&channel->changing);
    eventfd = which(channel)->held;
    MUTEX_UNLOCK(&channel->changing);
    return eventfd;
}

int pwp_bell_create(pTHX_ SV *self, int role, pwp_bell *(*which)(pwp_channel *)) {
    pwp_channel *channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    pwp_bell *bell = which(channel);
    pwk_status status = PWK_OK;
    pwk_error error;
    int number;
    MUTEX_LOCK(&channel->changing);
    if (bell->number < 0) {
        status = hold(bell, &error);
        if (status == PWK_OK) status = pwk_eventfd_create(bell->held, &bell->number, &error);
    }
    number = bell->number;
    MUTEX_UNLOCK(&channel->changing);
    if (status != PWK_OK) {
        pwp_failed(aTHX_ &error);
        croak("eventfd: %s", Strerror(errno));
    }
    return number;
}

/* Whether the kernel calls it an eventfd. Without /proc nobody can tell, and it is believed. */
static bool is_eventfd(int fd) {
    char name[64], target[64];
    ssize_t len;
    int before = errno;
    bool is;
    my_snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    len = readlink(name, target, sizeof target);
    is = len < 0 ? errno == ENOENT && access("/proc/self/fd", F_OK) != 0
                 : (size_t)len == strlen("anon_inode:[eventfd]")
                       && memcmp(target, "anon_inode:[eventfd]", (size_t)len) == 0;
    errno = before;
    return is;
}

void pwp_bell_set(pTHX_ SV *self, int role, pwp_bell *(*which)(pwp_channel *), SV *fd) {
    pwp_channel *channel;
    pwp_bell *bell;
    pwk_error error;
    pwk_status status;
    IV number;
    fd = pwp_fetch(aTHX_ fd);
    number = SvOK(fd) && looks_like_number(fd) ? SvIV_nomg(fd) : -1;
    channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    if (number < 0 || number > INT_MAX || !is_eventfd((int)number)) {
        SETERRNO(EINVAL, 0);
        croak("%s: not an eventfd", pwp_class_called(aTHX_ role));
    }
    bell = which(channel);
    MUTEX_LOCK(&channel->changing);
    status = hold(bell, &error);
    /* Setting another one closes its own. */
    if (status == PWK_OK && pwk_eventfd_fd(bell->held) != (int)number) {
        status = pwk_eventfd_set(bell->held, (int)number, &error);
    }
    if (status == PWK_OK) bell->number = (int)number;
    MUTEX_UNLOCK(&channel->changing);
    if (status != PWK_OK) {
        pwp_failed(aTHX_ &error);
        croak("eventfd: %s", Strerror(errno));
    }
}

int pwp_bell_fileno(pTHX_ SV *self, int role, pwp_bell *(*which)(pwp_channel *)) {
    return which(pwp_state(aTHX_ self, &pwp_reqrep_classes[role]))->number;
}

SV *pwp_bell_consume(pTHX_ SV *self, int role, pwp_bell *(*which)(pwp_channel *)) {
    pwk_eventfd *eventfd = held(pwp_state(aTHX_ self, &pwp_reqrep_classes[role]), which);
    uint64_t count = eventfd ? pwk_eventfd_consume(eventfd) : 0;
    return count ? sv_2mortal(newSVuv(count)) : &PL_sv_undef;
}

void pwp_channel_ring(pwp_channel *channel, pwp_bell *(*which)(pwp_channel *)) {
    pwk_eventfd *eventfd = held(channel, which);
    if (eventfd) pwk_eventfd_ring(eventfd);
}

void pwp_bell_ring(pTHX_ SV *self, int role, pwp_bell *(*which)(pwp_channel *)) {
    pwp_channel_ring(pwp_state(aTHX_ self, &pwp_reqrep_classes[role]), which);
}

int pwp_reqrep_doorbell(pTHX_ SV *self, int role, bool is_for_sending) {
    pwp_channel *channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    pwk_client *client;
    pwk_server *server;
    pwk_error error;
    pwk_status status;
    int fd = -1;
    if (PWP_IS_CLIENT(role)) {
        status = pwp_attach_client(aTHX_ channel, &client, &error);
        if (status == PWK_OK) {
            status = is_for_sending ? pwk_client_send_doorbell(client, &fd, &error)
                                    : pwk_client_doorbell(client, &fd, &error);
        }
    } else {
        status = pwp_attach_server(aTHX_ channel, &server, &error);
        if (status == PWK_OK) status = pwk_server_doorbell(server, &fd, &error);
    }
    if (status != PWK_OK) pwp_throw(aTHX_ &error);
    return fd;
}
