// plain.cpp as a program.
extern "C" int run(int argc, char** argv);

int main(int argc, char** argv) { return run(argc, argv); }
