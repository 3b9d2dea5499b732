// HTTP/1.1 on POSIX sockets: a thread for each connection, connections that are kept, and a bound on all that a client
// can make the server hold or wait for. It knows nothing of models.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace server {

struct HttpRequest {
  std::string method, target;
  std::map<std::string, std::string> headers;  // names in lower case; those that come again are joined by commas
  std::string body;
  // Whether the client closed its connection while it was to wait for the answer.
  std::function<bool()> client_is_gone;
};

struct HttpResponse {
  int status = 200;  // one of llhttp_status_t: llhttp aborts at others
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
  std::vector<std::pair<std::string, std::string>> headers;
  bool keep_alive = true;
};

struct HttpLimits {
  int connections = 256;
  size_t head_bytes = 16 << 10;
  size_t body_bytes = 64 << 20;
  size_t all_body_bytes = 1 << 30;  // of requests that are read or answered at a time
  std::chrono::seconds between_requests{60};
  // To send a request, from its first byte on, and to read the answer.
  std::chrono::seconds transfer{30};
};

class Reader;

class HttpServer {
 public:
  // Called by many threads at once. What it throws becomes a 500.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  // Told of every request, also of those that never reached the handler.
  using Observer = std::function<void(int status)>;

  // Listens from here on; port 0 takes a free one. Throws std::system_error.
  HttpServer(const std::string& address, int port, HttpLimits limits, Handler handler, Observer observer);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  // Accepts connections until `stop`.
  void run();
  // Ends `run`. Connections without a request are closed; the others get their answer, for which they have `grace`.
  void stop(std::chrono::seconds grace);

 private:
  bool start_thread(int socket);
  void refuse_connection(int socket);
  void serve(int socket);
  // Whether the end of the connection is ours.
  bool answer_requests(int socket);
  // Whether another request may follow.
  bool answer_request(int socket, Reader& reader);
  bool begins_request(int socket);
  void end_request(int socket);

  const HttpLimits limits_;
  const Handler handler_;
  const Observer observer_;
  int listener_ = -1, wake_up_ = -1;
  std::atomic<bool> stopping_ = false;
  std::atomic<size_t> held_ = 0;  // bytes of bodies
  std::mutex mutex_;
  std::condition_variable changed_;
  bool accepting_ = false;
  std::map<int, bool> connections_;  // by socket: whether it is busy with a request
};

}  // namespace server
