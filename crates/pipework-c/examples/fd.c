/* Sends a file to every connection, and refuses connections when descriptors have run out. */
#include <fcntl.h>
#include <netinet/in.h>
#include <pipework.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS = 3 };

static int fail(const pwk_error *error) {
    char text[256];
    pwk_error_text(error, text, sizeof text);
    return fprintf(stderr, "%s\n", text), 1;
}

/* Takes all that comes. */
static int fetch(const struct sockaddr_in *address) {
    pwk_error error;
    pwk_buffer data = PWK_BUFFER;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) return 1;
    if (pwk_fd_slurp(fd, 1 << 30, pwk_in_ms(5000), &data, NULL, &error) != PWK_OK) return fail(&error);
    printf("got the file: %s\n", data.len > 1000 ? "yes" : "no");
    pwk_buffer_free(&data);
    return fflush(stdout);
}

int main(int argc, char **argv) {
    pwk_error error;
    pwk_reserve *reserve = NULL;
    pwk_connection connections[16];
    size_t count, turned_away;
    pwk_stopped stopped;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int file = open(argv[argc > 1], O_RDONLY | O_CLOEXEC);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (file < 0 || bind(listener, (struct sockaddr *)&address, len) != 0 || listen(listener, 16) != 0) {
        return 1;
    }
    if (getsockname(listener, (struct sockaddr *)&address, &len) != 0) return 1;
    for (int i = 0; i < CLIENTS; i++) {
        if (fork() == 0) _exit(fetch(&address));
    }
    if (pwk_reserve_new(&reserve, &error) != PWK_OK) return fail(&error);
    for (size_t served = 0; served < CLIENTS; served += count) {
        struct pollfd polled = {listener, POLLIN, 0};
        if (pwk_fd_poll(&polled, 1, pwk_in_ms(5000), &count, &error) != PWK_OK) return fail(&error);
        if (count == 0) return 1;
        if (pwk_fd_accept_many(listener, connections, 16, &count, &stopped, &error) != PWK_OK) {
            return fail(&error);
        }
        for (size_t i = 0; i < count; i++) {
            int to = connections[i].fd;
            if (pwk_fd_sendfile_all(to, file, 0, UINT64_MAX, pwk_in_ms(5000), NULL, &error) != PWK_OK) {
                fail(&error);
            }
            close(to);
        }
        if (stopped == PWK_STOPPED_NO_DESCRIPTORS) {
            if (pwk_reserve_shed(reserve, listener, 16, &turned_away, NULL, &error) != PWK_OK) {
                return fail(&error);
            }
            fprintf(stderr, "%zu turned away\n", turned_away);
        }
    }
    pwk_reserve_free(reserve);
    while (wait(NULL) > 0) continue;
    return 0;
}
