module github.com/tensorplane/tensorplane/client/go

go 1.19

require (
	google.golang.org/grpc v1.56.3
	google.golang.org/protobuf v1.30.0
)
