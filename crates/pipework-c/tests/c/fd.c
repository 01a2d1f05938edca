/* Module fd. */
#include "check.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { CLOSED = 1000000 };

static char into[256];
static size_t count;
static uint64_t copied;
static pwk_stopped stopped;
static pwk_buffer data = PWK_BUFFER;

/* A file of that content, without a name. */
static int file_of(const char *bytes) {
    char path[] = "/tmp/pw-c-XXXXXX";
    int fd;
    OK(pwk_fd_mkstemp(AT_FDCWD, path, &fd, &error));
    CHECK(unlink(path) == 0);
    OK(pwk_fd_pwrite_all(fd, bytes, strlen(bytes), 0, &error));
    return fd;
}

static void ends_of(int ends[2]) {
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
}

static void close_both(const int ends[2]) {
    close(ends[0]);
    close(ends[1]);
}

/* A socket of the loopback, and its address. */
static int socket_of(int type, struct sockaddr_in *address) {
    socklen_t len = sizeof *address;
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)address, len) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)address, &len) == 0);
    return fd;
}

static int listener_at(struct sockaddr_in *address) {
    int fd = socket_of(SOCK_STREAM | SOCK_NONBLOCK, address);
    CHECK(listen(fd, 16) == 0);
    return fd;
}

static int connected_to(const struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0);
    return fd;
}

static void connections_are_accepted_by_the_batch(void) {
    struct sockaddr_in address, mine;
    socklen_t len = sizeof mine;
    pwk_connection connections[4];
    int listener = listener_at(&address), clients[3];
    OK(pwk_fd_accept_many(listener, connections, 4, &count, &stopped, &error));
    CHECK(count == 0 && stopped == PWK_STOPPED_WOULD_BLOCK);
    for (int i = 0; i < 3; i++) clients[i] = connected_to(&address);
    OK(pwk_fd_accept_many(listener, connections, 2, &count, &stopped, &error));
    CHECK(count == 2 && stopped == PWK_STOPPED_LIMIT);
    CHECK(getsockname(clients[0], (struct sockaddr *)&mine, &len) == 0);
    CHECK(connections[0].peer_len == sizeof mine
          && memcmp(&connections[0].peer, &mine, sizeof mine) == 0);
    CHECK(fcntl(connections[0].fd, F_GETFD) == FD_CLOEXEC);
    CHECK(fcntl(connections[0].fd, F_GETFL) & O_NONBLOCK);
    OK(pwk_fd_accept_many(listener, connections + 2, 2, &count, NULL, &error));
    CHECK(count == 1);
    OK(pwk_fd_accept_many(listener, NULL, 0, &count, &stopped, &error));
    CHECK(count == 0 && stopped == PWK_STOPPED_LIMIT);
    for (int i = 0; i < 3; i++) close(clients[i]), close(connections[i].fd);

    GIVES(PWK_INVALID, pwk_fd_accept_many(clients[0], connections, 4, &count, &stopped, &error));
    CHECK(error.os == EBADF);
    close(listener);
    int file = file_of("");
    GIVES(PWK_INVALID, pwk_fd_accept_many(file, connections, 4, &count, &stopped, &error));
    CHECK(error.os == ENOTSOCK);
    close(file);
    GIVES(PWK_INVALID, pwk_fd_accept_many(-1, connections, 4, &count, &stopped, &error));
}

static void who_cannot_be_served_is_turned_away(void) {
    struct sockaddr_in address;
    struct rlimit before, few;
    pwk_connection connections[2];
    pwk_reserve *reserve = NULL, *none = NULL;
    int listener = listener_at(&address);
    OK(pwk_reserve_new(&reserve, &error));
    CHECK(pwk_reserve_is_held(reserve));
    OK(pwk_reserve_shed(reserve, listener, 4, &count, &stopped, &error));
    CHECK(count == 0 && stopped == PWK_STOPPED_WOULD_BLOCK);
    int clients[2] = {connected_to(&address), connected_to(&address)};
    /* No number is left for another one. */
    int next = dup(clients[0]);
    close(next);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = before;
    few.rlim_cur = (rlim_t)next;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    OK(pwk_fd_accept_many(listener, connections, 2, &count, &stopped, &error));
    CHECK(count == 0 && stopped == PWK_STOPPED_NO_DESCRIPTORS);
    GIVES(PWK_OS, pwk_reserve_new(&none, &error));
    CHECK(error.os == EMFILE && none == NULL);
    OK(pwk_reserve_shed(reserve, listener, 1, &count, &stopped, &error));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(count == 1 && stopped == PWK_STOPPED_LIMIT && pwk_reserve_is_held(reserve));
    CHECK(read(clients[0], into, 1) == 0);
    GIVES(PWK_INVALID, pwk_reserve_shed(reserve, CLOSED, 4, &count, &stopped, &error));
    pwk_reserve_free(reserve);
    close_both(clients);
    close(listener);
}

static void anything_is_copied_to_anything(void) {
    int ends[2], sockets[2];
    int from = file_of("a file of bytes"), to = file_of("");
    ends_of(ends);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    OK(pwk_fd_copy_all(from, ends[1], 6, SOON, &copied, &error));
    CHECK(copied == 6);
    OK(pwk_fd_splice_all(ends[0], sockets[0], 6, SOON, &copied, &error));
    CHECK(copied == 6);
    OK(pwk_fd_sendfile_all(sockets[0], from, 7, UINT64_MAX, SOON, &copied, &error));
    CHECK(copied == 8);
    GIVES(PWK_TIMED_OUT, pwk_fd_copy_all(sockets[1], to, UINT64_MAX, SHORT, &copied, &error));
    CHECK(error.done == 14 && pread(to, into, sizeof into, 0) == 14);
    CHECK(memcmp(into, "a file bytes", 6) == 0 && memcmp(into + 6, "of bytes", 8) == 0);
    close(sockets[0]);
    OK(pwk_fd_copy_all(sockets[1], to, UINT64_MAX, SOON, &copied, NULL));
    CHECK(copied == 0);

    GIVES(PWK_INVALID, pwk_fd_copy_all(from, from, 1, SOON, &copied, &error));
    GIVES(PWK_INVALID, pwk_fd_sendfile_all(to, ends[0], 0, 1, SOON, &copied, &error));
    GIVES(PWK_INVALID, pwk_fd_splice_all(from, to, 1, SOON, &copied, &error));
    GIVES(PWK_TIMED_OUT, pwk_fd_splice_all(ends[0], to, 1, SHORT, &copied, &error));
    close(ends[0]);
    GIVES(PWK_CLOSED, pwk_fd_sendfile_all(ends[1], from, 0, 1, SOON, &copied, &error));
    CHECK(error.os == EPIPE);
    GIVES(PWK_INVALID, pwk_fd_copy_all(CLOSED, to, 1, SOON, &copied, &error));
    CHECK(error.os == EBADF);
    GIVES(PWK_INVALID, pwk_fd_splice_all(from, -1, 1, SOON, &copied, &error));
    close(ends[1]);
    close(sockets[1]);
    close(from);
    close(to);
}

static void all_of_it_is_read_and_written(void) {
    int ends[2];
    static char much[1 << 20];
    ends_of(ends);
    OK(pwk_fd_write_all(ends[1], "abcdefg", 7, SOON, &error));
    OK(pwk_fd_read_full(ends[0], into, 4, SOON, &count, &error));
    CHECK(count == 4);
    GIVES(PWK_TIMED_OUT, pwk_fd_read_full(ends[0], into, 4, SHORT, &count, &error));
    CHECK(error.done == 3 && memcmp(into, "efg", 3) == 0);
    GIVES(PWK_TIMED_OUT, pwk_fd_write_all(ends[1], much, sizeof much, SHORT, &error));
    CHECK(error.done > 4096 && error.done < sizeof much);
    uint64_t there = error.done;
    close(ends[1]);
    GIVES(PWK_TOO_LONG, pwk_fd_slurp(ends[0], 100, SOON, &data, &count, &error));
    CHECK(error.done == data.len && data.len > 100);
    OK(pwk_fd_slurp(ends[0], SIZE_MAX, SOON, &data, &count, &error));
    CHECK(data.len == there);
    OK(pwk_fd_read_full(ends[0], into, 4, SOON, &count, &error));
    CHECK(count == 0);
    close(ends[0]);
    pwk_buffer_free(&data);

    ends_of(ends);
    close(ends[0]);
    GIVES(PWK_CLOSED, pwk_fd_write_all(ends[1], "x", 1, SOON, &error));
    GIVES(PWK_INVALID, pwk_fd_pwrite_all(ends[1], "x", 1, 0, &error));
    CHECK(error.os == ESPIPE);
    close(ends[1]);

    int file = file_of("0123456789");
    OK(pwk_fd_pread_full(file, into, 4, 8, &count, &error));
    CHECK(count == 2 && memcmp(into, "89", 2) == 0);
    OK(pwk_fd_pwrite_all(file, "ab", 2, 4, &error));
    OK(pwk_fd_slurp(file, SIZE_MAX, SOON, &data, NULL, &error));
    CHECK(holds(&data, "0123ab6789"));
    CHECK(lseek(file, 8, SEEK_SET) == 8);
    OK(pwk_fd_slurp(file, 2, SOON, &data, &count, &error));
    CHECK(count == 2 && holds(&data, "0123ab678989"));
    pwk_buffer_free(&data);
    OK(pwk_fd_read_full(file, NULL, 0, SHORT, &count, &error));
    OK(pwk_fd_write_all(file, NULL, 0, SHORT, &error));
    OK(pwk_fd_pread_full(file, NULL, 0, 0, NULL, &error));
    OK(pwk_fd_pwrite_all(file, NULL, 0, 0, &error));
    close(file);
    GIVES(PWK_INVALID, pwk_fd_read_full(CLOSED, into, 1, SOON, &count, &error));
    CHECK(error.os == EBADF);
    GIVES(PWK_INVALID, pwk_fd_write_all(-1, "x", 1, SOON, &error));
    GIVES(PWK_INVALID, pwk_fd_slurp(CLOSED, 1, SOON, &data, &count, &error));
    GIVES(PWK_INVALID, pwk_fd_pread_full(CLOSED, into, 1, 0, &count, &error));
    GIVES(PWK_INVALID, pwk_fd_pwrite_all(CLOSED, "x", 1, 0, &error));
}

static void datagrams_come_and_go_by_the_batch(void) {
    struct sockaddr_in here, there;
    pwk_inbox *inbox = NULL, *none = NULL;
    pwk_datagram got[2];
    int from = socket_of(SOCK_DGRAM, &here), to = socket_of(SOCK_DGRAM, &there);
    const struct sockaddr *target = (const struct sockaddr *)&there;
    /* The length of an address may be that of its space. */
    pwk_datagram datagrams[2] = {{"one", 3, target, sizeof there, false},
                                {"a longer one", 12, target, sizeof(struct sockaddr_storage), false}};
    OK(pwk_inbox_new(16, 8, &inbox, &error));
    GIVES(PWK_INVALID, pwk_inbox_get(inbox, 0, &got[0], &error));
    GIVES(PWK_TIMED_OUT, pwk_inbox_recv(inbox, to, SHORT, &count, &error));
    OK(pwk_fd_send_many(from, datagrams, 2, SOON, &error));
    OK(pwk_inbox_recv(inbox, to, SOON, &count, &error));
    CHECK(count == 2);
    for (size_t i = 0; i < 2; i++) OK(pwk_inbox_get(inbox, i, &got[i], &error));
    CHECK(got[0].len == 3 && memcmp(got[0].data, "one", 3) == 0 && !got[0].is_cut);
    CHECK(got[1].len == 8 && memcmp(got[1].data, "a longer", 8) == 0 && got[1].is_cut);
    CHECK(got[0].address_len == sizeof here && memcmp(got[0].address, &here, sizeof here) == 0);
    GIVES(PWK_INVALID, pwk_inbox_get(inbox, 2, &got[0], &error));

    /* The received datagrams go back as they are. */
    OK(pwk_fd_send_many(to, got, 2, SOON, &error));
    CHECK(recv(from, into, sizeof into, 0) == 3 && recv(from, into, sizeof into, 0) == 8);
    CHECK(connect(to, (struct sockaddr *)&here, sizeof here) == 0);
    datagrams[0].address = NULL;
    OK(pwk_fd_send_many(to, datagrams, 1, SOON, &error));
    OK(pwk_fd_send_many(to, NULL, 0, SOON, &error));
    CHECK(recv(from, into, sizeof into, 0) == 3);

    /* The first is sent, the second has nowhere to go. */
    datagrams[0].address = target;
    datagrams[1].address = NULL;
    CHECK(pwk_fd_send_many(from, datagrams, 2, SOON, &error) != PWK_OK && error.done == 1);
    CHECK(error.os == EDESTADDRREQ);
    datagrams[0].address_len = 3;
    GIVES(PWK_INVALID, pwk_fd_send_many(from, datagrams, 1, SOON, &error));
    datagrams[0].address_len = 1;
    GIVES(PWK_INVALID, pwk_fd_send_many(from, datagrams, 1, SOON, &error));
    datagrams[0].address_len = sizeof(struct sockaddr_storage) + 1;
    GIVES(PWK_INVALID, pwk_fd_send_many(from, datagrams, 1, SOON, &error));
    NAMES(pwk_fd_send_many);
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    GIVES(PWK_UNSUPPORTED, pwk_fd_send_many(sockets[0], datagrams + 1, 1, SOON, &error));
    close_both(sockets);

    GIVES(PWK_INVALID, pwk_inbox_new(0, 8, &none, &error));
    GIVES(PWK_INVALID, pwk_inbox_new(1, 0, &none, &error));
    GIVES(PWK_OS, pwk_inbox_new(64, SIZE_MAX, &none, &error));
    CHECK(error.os == ENOMEM && none == NULL);
    close(from);
    close(to);
    GIVES(PWK_INVALID, pwk_inbox_recv(inbox, to, SHORT, &count, &error));
    CHECK(error.os == EBADF);
    pwk_inbox_free(inbox);
}

static void datagrams_have_addresses_of_any_family(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int from = socket(AF_UNIX, SOCK_DGRAM, 0), to = socket(AF_UNIX, SOCK_DGRAM, 0);
    pwk_inbox *inbox = NULL;
    pwk_datagram got;
    /* In the abstract namespace a name begins with NUL, and its length counts. */
    int len = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "pw-c-%d", (int)getpid()) + 3;
    CHECK(bind(to, (struct sockaddr *)&address, (socklen_t)len) == 0);
    pwk_datagram datagram = {"hello", 5, (struct sockaddr *)&address, (socklen_t)len, false};
    OK(pwk_fd_send_many(from, &datagram, 1, SOON, &error));
    OK(pwk_inbox_new(1, 16, &inbox, &error));
    OK(pwk_inbox_recv(inbox, to, SOON, &count, &error));
    OK(pwk_inbox_get(inbox, 0, &got, &error));
    CHECK(got.len == 5 && got.address == NULL && got.address_len == 0);
    pwk_inbox_free(inbox);
    close(from);
    close(to);
}

static void temporary_names_are_new(void) {
    char path[] = "/tmp/pw-c-XXXXXXXX", other[] = "pw-c-XXXXXX", few[] = "/tmp/pw-c-XXXXX";
    struct stat of_file;
    int fd = -1, folder = open("/tmp", O_DIRECTORY | O_CLOEXEC);
    OK(pwk_fd_mkstemp(AT_FDCWD, path, &fd, &error));
    CHECK(stat(path, &of_file) == 0 && (of_file.st_mode & 0777) == 0600);
    CHECK(strcmp(path, "/tmp/pw-c-XXXXXXXX") != 0 && strlen(path) == 18 && unlink(path) == 0);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    close(fd);
    OK(pwk_fd_mktemp(folder, other, &error));
    CHECK(strcmp(other, "pw-c-XXXXXX") != 0 && faccessat(folder, other, F_OK, 0) != 0);
    strcpy(other, "pw-c-XXXXXX");
    OK(pwk_fd_mkstemp(folder, other, &fd, &error));
    CHECK(unlinkat(folder, other, 0) == 0);
    close(fd);
    GIVES(PWK_INVALID, pwk_fd_mkstemp(AT_FDCWD, few, &fd, &error));
    GIVES(PWK_INVALID, pwk_fd_mktemp(AT_FDCWD, few, &error));
    CHECK(strcmp(few, "/tmp/pw-c-XXXXX") == 0);
    char nowhere[] = "/nowhere/XXXXXX";
    GIVES(PWK_OS, pwk_fd_mkstemp(AT_FDCWD, nowhere, &fd, &error));
    CHECK(error.os == ENOENT && strcmp(nowhere, "/nowhere/XXXXXX") == 0);
    strcpy(other, "pw-c-XXXXXX");
    GIVES(PWK_INVALID, pwk_fd_mkstemp(CLOSED, other, &fd, &error));
    CHECK(error.os == EBADF);
    GIVES(PWK_INVALID, pwk_fd_mktemp(-1, other, &error));
    close(folder);
}

static void descriptors_are_polled_until_a_deadline(void) {
    int ends[2];
    ends_of(ends);
    struct pollfd fds[4] = {{ends[0], POLLIN, 77}, {-1, POLLIN, 77}, {ends[1], POLLOUT, 77}, {CLOSED, 0, 77}};
    OK(pwk_fd_poll(fds, 4, SOON, &count, &error));
    CHECK(count == 2 && fds[0].revents == 0 && fds[1].revents == 0);
    CHECK(fds[2].revents == POLLOUT && fds[3].revents == POLLNVAL);
    OK(pwk_fd_poll(fds, 1, SHORT, &count, &error));
    CHECK(count == 0);
    CHECK(write(ends[1], "x", 1) == 1);
    OK(pwk_fd_poll(fds, 2, PWK_NEVER, &count, &error));
    CHECK(count == 1 && fds[0].revents == POLLIN);
    OK(pwk_fd_poll(NULL, 0, SHORT, NULL, &error));
    GIVES(PWK_INVALID, pwk_fd_poll(NULL, 1, SHORT, &count, &error));
    NAMES(pwk_fd_poll);
    GIVES(PWK_INVALID, pwk_fd_poll(fds, SIZE_MAX, SHORT, &count, &error));
    close_both(ends);
}

static void a_range_is_closed(void) {
    unsigned from = 240;
    CHECK(dup2(0, 240) == 240 && dup2(0, 242) == 242);
    OK(pwk_fd_close_range_on_exec(from, 241, &error));
    CHECK(fcntl(240, F_GETFD) == FD_CLOEXEC && fcntl(242, F_GETFD) == 0);
    OK(pwk_fd_close_range(from, 242, &error));
    CHECK(fcntl(240, F_GETFD) == -1 && fcntl(242, F_GETFD) == -1);
    GIVES(PWK_INVALID, pwk_fd_close_range(2, 1, &error));
    GIVES(PWK_INVALID, pwk_fd_close_range_on_exec(2, 1, &error));
}

static void a_signal_ends_every_wait_and_nothing_is_lost(void) {
    struct signals signals;
    struct sockaddr_in address;
    pwk_inbox *inbox = NULL;
    int ends[2], full[2], dgrams[2], socket = socket_of(SOCK_DGRAM, &address);
    char much[4096] = {0};
    ends_of(ends);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, full) == 0
          && socketpair(AF_UNIX, SOCK_DGRAM, 0, dgrams) == 0);
    while (send(full[0], much, sizeof much, MSG_DONTWAIT) > 0) continue;
    while (send(dgrams[0], "x", 1, MSG_DONTWAIT) > 0) continue;
    int file = file_of("a file");
    struct pollfd polled = {ends[0], POLLIN, 0};
    pwk_datagram datagram = {"x", 1, NULL, 0, false};
    OK(pwk_inbox_new(1, 1, &inbox, &error));
    begin(&signals);
    GIVES(PWK_INTERRUPTED, pwk_fd_read_full(ends[0], into, 4, SOON, &count, &error));
    GIVES(PWK_INTERRUPTED, pwk_fd_write_all(full[0], "x", 1, SOON, &error));
    GIVES(PWK_INTERRUPTED, pwk_fd_slurp(ends[0], 4, SOON, &data, &count, &error));
    GIVES(PWK_INTERRUPTED, pwk_fd_copy_all(ends[0], file, 1, SOON, &copied, &error));
    GIVES(PWK_INTERRUPTED, pwk_fd_splice_all(ends[0], file, 1, SOON, &copied, &error));
    GIVES(PWK_INTERRUPTED, pwk_fd_sendfile_all(full[0], file, 0, 1, SOON, &copied, &error));
    GIVES(PWK_INTERRUPTED, pwk_fd_poll(&polled, 1, SOON, &count, &error));
    GIVES(PWK_INTERRUPTED, pwk_inbox_recv(inbox, socket, SOON, &count, &error));
    GIVES(PWK_INTERRUPTED, pwk_fd_send_many(dgrams[0], &datagram, 1, SOON, &error));
    end(&signals);
    OK(pwk_fd_write_all(ends[1], "here", 4, SOON, &error));
    OK(pwk_fd_read_full(ends[0], into, 4, SOON, &count, &error));
    CHECK(count == 4 && memcmp(into, "here", 4) == 0);
    pwk_inbox_free(inbox);
    close_both(ends);
    close_both(full);
    close_both(dgrams);
    close(socket);
    close(file);
    pwk_buffer_free(&data);
}

enum { MUCH = 1 << 22 };

static void *write_much(void *fd) {
    char *bytes = malloc(MUCH);
    for (int i = 0; i < MUCH; i++) bytes[i] = (char)(i * 7 + i / 256);
    OK(pwk_fd_write_all(*(int *)fd, bytes, MUCH, SOON, &error));
    close(*(int *)fd);
    free(bytes);
    return NULL;
}

static void threads_and_children_use_one_descriptor(void) {
    int ends[2];
    ends_of(ends);
    pthread_t thread = started(write_much, &ends[1]);
    OK(pwk_fd_slurp(ends[0], MUCH, SOON, &data, &count, &error));
    pthread_join(thread, NULL);
    CHECK(count == MUCH);
    for (int i = 0; i < MUCH; i++) CHECK(((char *)data.data)[i] == (char)(i * 7 + i / 256));
    close(ends[0]);
    pwk_buffer_free(&data);

    ends_of(ends);
    pid_t child = fork();
    if (child == 0) {
        OK(pwk_fd_write_all(ends[1], "a child's", 9, SOON, &error));
        close_both(ends);
        _exit(0);
    }
    OK(pwk_fd_read_full(ends[0], into, 9, SOON, &count, &error));
    CHECK(memcmp(into, "a child's", 9) == 0);
    reap(child);
    close_both(ends);
}

static void null_is_an_error_where_it_means_nothing(void) {
    pwk_reserve *reserve = NULL;
    pwk_inbox *inbox = NULL;
    pwk_connection connection;
    pwk_datagram datagram;
    char path[] = "/tmp/XXXXXX";
    OK(pwk_inbox_new(1, 1, &inbox, &error));
    GIVES(PWK_INVALID, pwk_fd_accept_many(0, NULL, 1, &count, &stopped, &error));
    GIVES(PWK_INVALID, pwk_fd_accept_many(0, &connection, SIZE_MAX, &count, &stopped, &error));
    GIVES(PWK_INVALID, pwk_fd_accept_many(0, &connection, 1, NULL, &stopped, &error));
    NAMES(pwk_fd_accept_many);
    GIVES(PWK_INVALID, pwk_reserve_new(NULL, &error));
    NAMES(pwk_reserve_new);
    GIVES(PWK_INVALID, pwk_reserve_shed(NULL, 0, 1, &count, &stopped, &error));
    NAMES(pwk_reserve_shed);
    GIVES(PWK_INVALID, pwk_fd_read_full(0, NULL, 1, SOON, &count, &error));
    GIVES(PWK_INVALID, pwk_fd_read_full(0, into, SIZE_MAX, SOON, &count, &error));
    NAMES(pwk_fd_read_full);
    GIVES(PWK_INVALID, pwk_fd_write_all(1, NULL, 1, SOON, &error));
    NAMES(pwk_fd_write_all);
    GIVES(PWK_INVALID, pwk_fd_slurp(0, 1, SOON, NULL, &count, &error));
    NAMES(pwk_fd_slurp);
    GIVES(PWK_INVALID, pwk_fd_pread_full(0, NULL, 1, 0, &count, &error));
    NAMES(pwk_fd_pread_full);
    GIVES(PWK_INVALID, pwk_fd_pwrite_all(1, NULL, 1, 0, &error));
    NAMES(pwk_fd_pwrite_all);
    GIVES(PWK_INVALID, pwk_inbox_new(1, 1, NULL, &error));
    NAMES(pwk_inbox_new);
    GIVES(PWK_INVALID, pwk_inbox_recv(NULL, 0, SOON, &count, &error));
    NAMES(pwk_inbox_recv);
    GIVES(PWK_INVALID, pwk_inbox_get(NULL, 0, &datagram, &error));
    NAMES(pwk_inbox_get);
    GIVES(PWK_INVALID, pwk_fd_send_many(0, NULL, 1, SOON, &error));
    NAMES(pwk_fd_send_many);
    GIVES(PWK_INVALID, pwk_fd_mkstemp(AT_FDCWD, NULL, NULL, &error));
    GIVES(PWK_INVALID, pwk_fd_mkstemp(AT_FDCWD, path, NULL, &error));
    NAMES(pwk_fd_mkstemp);
    GIVES(PWK_INVALID, pwk_fd_mktemp(AT_FDCWD, NULL, &error));
    NAMES(pwk_fd_mktemp);
    pwk_inbox_free(inbox);
    pwk_inbox_free(NULL);
    pwk_reserve_free(reserve);
    CHECK(!pwk_reserve_is_held(NULL));
}

static const struct test tests[] = {
    TEST(connections_are_accepted_by_the_batch),
    TEST(who_cannot_be_served_is_turned_away),
    TEST(anything_is_copied_to_anything),
    TEST(all_of_it_is_read_and_written),
    TEST(datagrams_come_and_go_by_the_batch),
    TEST(datagrams_have_addresses_of_any_family),
    TEST(temporary_names_are_new),
    TEST(descriptors_are_polled_until_a_deadline),
    TEST(a_range_is_closed),
    TEST(a_signal_ends_every_wait_and_nothing_is_lost),
    TEST(threads_and_children_use_one_descriptor),
    TEST(null_is_an_error_where_it_means_nothing),
};
MAIN(tests)
