/* Loads the library whose path it is given, uses it, closes it and forks: again and again. */
#include <pipework.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A function of the library by its own name. ISO C has no cast from an object to a function. */
#define FIND(name)                                      \
    __typeof__(&name) name##_found;                     \
    do {                                                \
        void *found = dlsym(library, #name);            \
        memcpy(&name##_found, &found, sizeof found);    \
        if (found == NULL) return __LINE__;             \
    } while (0)
#define OK(call) \
    if ((call) != PW_OK) return __LINE__

static int use(void *library) {
    pw_segment *segment = NULL;
    pw_client *client = NULL;
    pw_server *server = NULL;
    pw_buffer buffer = PW_BUFFER;
    pw_request request;
    uint64_t ticket;
    int doorbell;
    FIND(pw_reqrep_anonymous);
    FIND(pw_reqrep_client);
    FIND(pw_reqrep_server);
    FIND(pw_client_send);
    FIND(pw_client_recv);
    FIND(pw_client_doorbell);
    FIND(pw_server_recv);
    FIND(pw_server_reply);
    FIND(pw_buffer_free);
    FIND(pw_client_free);
    FIND(pw_server_free);
    FIND(pw_segment_free);
    OK(pw_reqrep_anonymous_found(NULL, &segment, NULL));
    OK(pw_reqrep_client_found(segment, NULL, &client, NULL));
    OK(pw_reqrep_server_found(segment, NULL, &server, NULL));
    /* A thread that waits on behalf of the loop. */
    OK(pw_client_doorbell_found(client, &doorbell, NULL));
    OK(pw_client_send_found(client, "hello", 5, 0, PW_NEVER, &ticket, NULL));
    OK(pw_server_recv_found(server, PW_NEVER, &buffer, &request, NULL));
    OK(pw_server_reply_found(server, request.ticket, buffer.data, buffer.len, 0, NULL, NULL));
    OK(pw_client_recv_found(client, ticket, PW_NEVER, &buffer, NULL, NULL));
    int failed = buffer.len == 5 ? 0 : __LINE__;
    pw_buffer_free_found(&buffer);
    pw_client_free_found(client);
    pw_server_free_found(server);
    pw_segment_free_found(segment);
    close(doorbell);
    return failed;
}

int main(int argc, char **argv) {
    for (int i = 0; i < 3 && argc == 2; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
        int failed = use(library);
        if (failed != 0) return fprintf(stderr, "line %d\n", failed), 1;
        dlclose(library);
        int status;
        pid_t child = fork();
        if (child == 0) _exit(0);
        if (waitpid(child, &status, 0) != child || status != 0) return 1;
    }
    return argc != 2;
}
