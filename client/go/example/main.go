// Submits the demo's MLP, runs it once, and deletes it. Usage: example HOST:PORT deploy/demo/mlp.textproto
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/tensorplane/tensorplane/client/go"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: example HOST:PORT SUBMISSION")
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, server, file string) error {
	client, err := tensorplane.Connect(server, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Submit(ctx, file, nil); err != nil {
		return err
	}
	defer client.Delete(ctx, "mlp")
	x := tensorplane.NewTensor([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 1, 8)
	answer, err := client.Forward(ctx, "mlp", tensorplane.Inputs{"x": x}, nil)
	if err != nil {
		return err
	}
	y, err := tensorplane.Values[float32](answer.Outputs["y"])
	fmt.Printf("%.3f\n", y)
	return err
}
