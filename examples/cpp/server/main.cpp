// server MODEL --input float32:*x3x224x224 [options]: serves a TorchScript model over HTTP. README.md
#include <ATen/Parallel.h>
#include <pthread.h>

#include <csignal>
#include <cstring>
#include <iostream>
#include <map>
#include <stdexcept>
#include <thread>

#include "batcher.h"
#include "http.h"
#include "metrics.h"
#include "model.h"
#include "npy.h"

namespace {

using server::Batcher;
using server::HttpRequest;
using server::HttpResponse;

const char USAGE[] = R"(usage: server MODEL --input DTYPE:*xSIZExSIZE.. [options]
  MODEL              a TorchScript file, optimised by ipex or not
  --input SPEC       what the model takes, as float32:*x3x224x224; once for each input, in order. * is any size
  --address A        to listen on (127.0.0.1; 0.0.0.0 for other machines)
  --port N           (8080; 0 for a free one)
  --workers N        how many batches may run at once (1)
  --threads N        of each worker (all cores / workers)
  --max-batch N      how many rows to join at most (8)
  --max-delay-us N   how long a request waits for others to join (2000)
  --queue N          how many requests may wait (64)
  --max-body-mb N    of a request (64); all at a time hold 16 times that
  --connections N    at once (256)
  --grace N          seconds that requests have when the server ends (30)
  --use-allocator 1  what aten computes in the model comes from ipex's allocator too (0)
)";

struct Options {
  std::string model, address = "127.0.0.1";
  std::vector<server::InputSpec> inputs;
  int port = 8080;
  std::chrono::seconds grace{30};
  server::HttpLimits limits;
  server::BatcherOptions batcher;
};

Options parse(int argc, char** argv) {
  if (argc < 2) throw std::invalid_argument(USAGE);
  Options options;
  options.model = argv[1];
  std::map<std::string, int> numbers{{"--port", 8080},      {"--workers", 1}, {"--threads", 0},
                                     {"--max-batch", 8},    {"--queue", 64},  {"--max-delay-us", 2000},
                                     {"--max-body-mb", 64}, {"--grace", 30},  {"--connections", 256},
                                     {"--use-allocator", 0}};
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(USAGE);
    const std::string value = argv[i + 1];
    if (name == "--input") {
      options.inputs.push_back(server::parse_input(value));
    } else if (name == "--address") {
      options.address = value;
    } else {
      const bool is_number = value.size() < 10 && value.find_first_not_of("0123456789") == std::string::npos;
      if (!numbers.count(name)) throw std::invalid_argument(USAGE);
      if (!is_number || value.empty()) throw std::invalid_argument(name + ": expected a number, got '" + value + "'.");
      numbers[name] = std::stoi(value);
    }
  }
  if (options.inputs.empty())
    throw std::invalid_argument("--input: expected one for each input of the model, got none.");
  for (const char* name : {"--workers", "--max-batch", "--queue", "--connections", "--max-body-mb"}) {
    if (numbers[name] == 0) throw std::invalid_argument(std::string(name) + ": expected 1 or more, got 0.");
  }
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  options.port = numbers["--port"];
  options.grace = std::chrono::seconds(numbers["--grace"]);
  options.limits.connections = numbers["--connections"];
  options.limits.body_bytes = static_cast<size_t>(numbers["--max-body-mb"]) << 20;
  options.limits.all_body_bytes = 16 * options.limits.body_bytes;
  options.batcher.workers = numbers["--workers"];
  options.batcher.threads = numbers["--threads"] ? numbers["--threads"] : std::max(1, cores / numbers["--workers"]);
  options.batcher.most_rows = numbers["--max-batch"];
  options.batcher.most_delay = std::chrono::microseconds(numbers["--max-delay-us"]);
  options.batcher.queue = static_cast<size_t>(numbers["--queue"]);
  options.batcher.use_allocator = numbers["--use-allocator"] != 0;
  return options;
}

// POST /predict
class Predictor {
 public:
  Predictor(server::Model& model, Batcher& batcher, server::Metrics& metrics)
      : model_(model), batcher_(batcher), metrics_(metrics) {}

  HttpResponse operator()(const HttpRequest& request) const {
    const auto start = std::chrono::steady_clock::now();
    Batcher::Tensors inputs;
    try {
      inputs = server::decode_npy(request.body);
      model_.check(inputs);
    } catch (const std::invalid_argument& error) {
      return {400, std::string("POST /predict: ") + error.what() + "\n"};
    }
    std::optional<Batcher::Ticket> ticket = batcher_.submit(std::move(inputs));
    if (!ticket) {
      metrics_.count_rejected();
      HttpResponse response{503, "POST /predict: the queue is full. Try again later.\n"};
      response.headers = {{"Retry-After", "1"}};
      return response;
    }
    while (!ticket->is_ready_within(std::chrono::milliseconds(20))) {
      if (request.client_is_gone()) {
        batcher_.cancel(*ticket);
        return {499, ""};
      }
    }
    HttpResponse response{200, server::encode_npy(ticket->result()), "application/x-npy"};
    metrics_.add_latency(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return response;
  }

 private:
  server::Model& model_;
  Batcher& batcher_;
  server::Metrics& metrics_;
};

HttpResponse only(const char* method, const HttpRequest& request, const std::function<HttpResponse()>& answer) {
  if (request.method == method) return answer();
  HttpResponse response{405, request.target + ": expected " + method + ", got " + request.method + ".\n"};
  response.headers = {{"Allow", method}};
  return response;
}

// Until SIGTERM or SIGINT.
void serve(const Options& options) {
  server::Model model(options.model, options.inputs);
  at::set_num_threads(options.batcher.threads);
  model.warm_up(options.batcher.most_rows);
  server::Metrics metrics;
  Batcher batcher(
      options.batcher, [&](const Batcher::Tensors& inputs) { return model.run(inputs); },
      [&](int64_t rows) { metrics.add_batch(rows); });
  const Predictor predict(model, batcher, metrics);
  const auto handle = [&](const HttpRequest& request) -> HttpResponse {
    if (request.target == "/predict") return only("POST", request, [&] { return predict(request); });
    if (request.target == "/health") return only("GET", request, [] { return HttpResponse{200, "ready\n"}; });
    if (request.target == "/metrics") {
      const char* type = "text/plain; version=0.0.4; charset=utf-8";
      return only("GET", request, [&] { return HttpResponse{200, metrics.text(batcher.queued()), type}; });
    }
    return {404, "expected /predict, /health or /metrics, got " + request.target + ".\n"};
  };
  server::HttpServer http(options.address, options.port, options.limits, handle,
                          [&](int status) { metrics.count_request(status); });
  std::cout << "server: listening on " << options.address << ':' << http.port() << ", " << options.batcher.workers
            << " workers of " << options.batcher.threads << " threads" << std::endl;

  std::thread accepting(&server::HttpServer::run, &http);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  int signal = 0;
  sigwait(&signals, &signal);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // a second one ends the process at once
  std::cout << "server: got " << strsignal(signal) << ", answering what was asked" << std::endl;
  http.stop(options.grace);
  accepting.join();
  batcher.stop();
  std::cout << "server: done" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  // Threads inherit it: only `serve` takes these signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  try {
    serve(parse(argc, argv));
    return 0;
  } catch (const std::invalid_argument& error) {
    std::cerr << error.what() << '\n';
    return 2;
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "server: " << error.what() << '\n';
  }
  return 1;
}
