/* Eventfds that programs ring, and the doorbells, which the library rings. */
#include "reqrep.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

pwp_bell *pwp_request_bell(pwp_channel *channel) {
    return &channel->requests;
}

pwp_bell *pwp_reply_bell(pwp_channel *channel) {
    return &channel->replies;
}

/* The program may close a bell's descriptor, and then the number belongs to what it opens next. So the
 * open file has a mark, which the kernel keeps: a signal for asynchronous input, which is never switched
 * on. The C libraries keep that signal for themselves, and the mark of the core is another one. */
#define BELL_MARK 33

/* The bells that have a descriptor. If one gets the number of another, the program has closed that one's. */
static pwp_bell *all;
#ifdef USE_ITHREADS
static perl_mutex all_changing = PTHREAD_MUTEX_INITIALIZER;
#endif

/* The descriptor, if the program has left it open, or -1. */
static int intact(const pwp_bell *bell) {
    return bell->fd >= 0 && fcntl(bell->fd, F_GETSIG) == BELL_MARK ? bell->fd : -1;
}

static void take_out(pwp_bell *bell) {
    pwp_bell **each = &all;
    while (*each && *each != bell) each = &(*each)->next;
    if (*each) *each = bell->next;
    bell->fd = -1;
}

void pwp_bell_free(pwp_bell *bell) {
    int fd;
    MUTEX_LOCK(&all_changing);
    fd = intact(bell);
    take_out(bell);
    if (fd >= 0) close(fd);
    MUTEX_UNLOCK(&all_changing);
}

/* Gives it a new eventfd, or a duplicate of that one; the number, or -1 with errno. What it had is closed. */
static int begin(pwp_bell *bell, int number) {
    pwp_bell *each, *next;
    int before, fd;
    MUTEX_LOCK(&all_changing);
    fd = number < 0 ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : fcntl(number, F_DUPFD_CLOEXEC, 3);
    if (fd >= 0 && fcntl(fd, F_SETSIG, BELL_MARK) < 0) {
        before = errno;
        close(fd);
        errno = before;
        fd = -1;
    }
    if (fd >= 0) {
        for (each = all; each; each = next) {
            next = each->next;
            if (each->fd == fd) take_out(each);
        }
        if (intact(bell) >= 0) close(bell->fd);
        take_out(bell);
        bell->fd = fd;
        bell->number = number < 0 ? fd : number;
        bell->next = all;
        all = bell;
    }
    MUTEX_UNLOCK(&all_changing);
    return fd;
}

int pwp_bell_create(pTHX_ SV *self, int role, pwp_bell *(*which)(pwp_channel *)) {
    pwp_channel *channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    pwp_bell *bell = which(channel);
    int number;
    MUTEX_LOCK(&channel->changing);
    /* Another one, if the program has closed it. */
    number = intact(bell) < 0 && begin(bell, -1) < 0 ? -1 : bell->number;
    MUTEX_UNLOCK(&channel->changing);
    if (number < 0) croak("eventfd: %s", Strerror(errno));
    return number;
}

/* Whether the kernel calls it an eventfd. Without /proc that cannot be known, and counts as true. */
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
    IV number;
    int copy = 0;
    fd = pwp_fetch(aTHX_ fd);
    number = SvOK(fd) && looks_like_number(fd) ? SvIV_nomg(fd) : -1;
    channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    if (number < 0 || number > INT_MAX || !is_eventfd((int)number)) {
        SETERRNO(EINVAL, 0);
        croak("%s: not an eventfd", pwp_class_called(aTHX_ role));
    }
    bell = which(channel);
    MUTEX_LOCK(&channel->changing);
    /* Setting its own again keeps it. */
    if (intact(bell) == (int)number) {
        bell->number = (int)number;
    } else {
        copy = begin(bell, (int)number);
    }
    MUTEX_UNLOCK(&channel->changing);
    if (copy < 0) croak("eventfd: %s", Strerror(errno));
}

/* The count of an eventfd, which becomes 0. Never waits, even where the eventfd would. */
static uint64_t taken(int fd) {
    uint64_t count = 0;
    const struct iovec into = {&count, sizeof count};
    struct pollfd polled = {fd, POLLIN, 0};
    ssize_t len = preadv2(fd, &into, 1, -1, RWF_NOWAIT);
    /* The kernel may not know how to ask an eventfd in this way. */
    if (len < 0 && (errno == EOPNOTSUPP || errno == ENOSYS) && poll(&polled, 1, 0) == 1) {
        len = read(fd, &count, sizeof count);
    }
    return len == sizeof count ? count : 0;
}

SV *pwp_bell_consume(pTHX_ SV *self, int role, pwp_bell *(*which)(pwp_channel *)) {
    pwp_channel *channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    const pwp_bell *bell = which(channel);
    uint64_t count;
    int fd;
    dSAVE_ERRNO;
    MUTEX_LOCK(&channel->changing);
    fd = intact(bell);
    count = fd >= 0 ? taken(fd) : 0;
    MUTEX_UNLOCK(&channel->changing);
    RESTORE_ERRNO;
    return count ? sv_2mortal(newSVuv(count)) : &PL_sv_undef;
}

void pwp_channel_ring(pwp_channel *channel, pwp_bell *(*which)(pwp_channel *)) {
    const uint64_t one = 1;
    const pwp_bell *bell = which(channel);
    int before = errno, fd;
    MUTEX_LOCK(&channel->changing);
    fd = intact(bell);
    /* It fails only where the count is as large as it can be: then it is readable already. */
    if (fd >= 0 && write(fd, &one, sizeof one) < 0) NOOP;
    MUTEX_UNLOCK(&channel->changing);
    errno = before;
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
