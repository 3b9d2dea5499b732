// A race, to see that ThreadSanitizer would report one.
#include <thread>

int main() {
  volatile int counter = 0;
  const auto count = [&counter] {
    for (int i = 0; i < 1000; ++i) counter = counter + 1;
  };
  std::thread first(count), second(count);
  first.join();
  second.join();
}
