// The whole of the API in one run: submit, watch, describe, forward, put, redistribute, get, generate, delete. Prints the
// same lines as client/python/examples/scenario.py and client/tp_client/example/scenario.cc; a test compares them.
//
// Usage: scenario HOST:PORT MLP_SUBMISSION LM_SUBMISSION X PROMPT     (X: 8 numbers with commas between them)
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tensorplane/tensorplane/client/go"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func shapeText(shape []int64) string {
	texts := make([]string, len(shape))
	for i, size := range shape {
		texts[i] = strconv.FormatInt(size, 10)
	}
	return strings.Join(texts, "x")
}

func printValues(what string, tensor *tensorplane.Tensor) {
	fmt.Print(what, " ", shapeText(tensor.Shape))
	for _, value := range must(tensor.Float32s()) {
		fmt.Printf(" %.6f", value)
	}
	fmt.Println()
}

func printModel(what string, model tensorplane.ModelSummary) {
	fmt.Println(what, model.Name, model.State, model.Mesh, model.ParameterBytes)
}

func models(ctx context.Context, client *tensorplane.Client, file, numbers string) {
	printModel("submit", must(client.Submit(ctx, file, &tensorplane.SubmitOptions{Name: "mlp"})).Model)
	check(client.Watch(ctx, "mlp", func(model tensorplane.ModelSummary) error {
		printModel("watch", model)
		return tensorplane.Stop
	}))
	for _, parameter := range must(client.Describe(ctx, "mlp", false)).Parameters {
		fmt.Print("parameter ", parameter.Name, " ", shapeText(parameter.Shape), " ", parameter.Placements)
		for _, local := range parameter.Local {
			fmt.Printf(" %d:%s@%s", local.Rank, shapeText(local.Shape), shapeText(local.Offset))
		}
		fmt.Println()
	}
	var x []float32
	for _, number := range strings.Split(numbers, ",") {
		x = append(x, float32(must(strconv.ParseFloat(number, 32))))
	}
	answer := must(client.Forward(ctx, "mlp", tensorplane.Inputs{"x": tensorplane.NewTensor(x, 1, 8)}, nil))
	for _, name := range answer.Names {
		printValues("forward "+name, answer.Outputs[name])
	}
	for _, count := range answer.Collectives {
		fmt.Println("collective", count.Module, count.Op, count.Axis, count.SizeBytes)
	}
}

func tensors(ctx context.Context, client *tensorplane.Client) {
	mesh := must(client.CreateMesh(ctx, "m", "tp=2"))
	fmt.Println("mesh", mesh.Name, mesh.Mesh, mesh.State)
	values := make([]float32, 15)
	for i := range values {
		values[i] = float32(i) / 8
	}
	put := must(client.PutTensor(ctx, "w", tensorplane.NewTensor(values, 5, 3), tensorplane.PutOptions{Mesh: "m", Placements: "tp=S(0)"}))
	fmt.Println("put", put.Name, put.Placements)
	for _, local := range must(client.GetLocalBlocks(ctx, "w")) {
		printValues("local", local)
	}
	moved := must(client.RedistributeTensor(ctx, "w", tensorplane.RedistributeOptions{Placements: "tp=SS(0,2)"}))
	fmt.Print("redistribute ", moved.Tensor.Placements)
	for _, step := range moved.Counted {
		fmt.Printf(" %s/%s/%d", step.Op, step.Axis, step.SizeBytes)
	}
	fmt.Println()
	for _, local := range must(client.GetLocalBlocks(ctx, "w")) {
		printValues("local", local)
	}
	printValues("get", must(client.GetTensor(ctx, "w")))
}

func generate(ctx context.Context, client *tensorplane.Client, file, prompt string) {
	must(client.Submit(ctx, file, &tensorplane.SubmitOptions{Name: "lm"}))
	var text, reason string
	fmt.Print("generate")
	options := tensorplane.GenerateOptions{Text: prompt, MaxNewTokens: 24, IgnoreEOS: true}
	check(client.Generate(ctx, "lm", options, func(chunk tensorplane.GenerateChunk) error {
		for _, id := range chunk.TokenIDs {
			fmt.Printf(" %d", id)
		}
		text, reason = text+chunk.Text, chunk.FinishReason
		return nil
	}))
	fmt.Printf("\ntext %s\nfinish %s\n", text, reason)
}

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: scenario HOST:PORT MLP_SUBMISSION LM_SUBMISSION X PROMPT")
		os.Exit(2)
	}
	ctx := context.Background()
	client := must(tensorplane.Connect(os.Args[1], &tensorplane.Options{Timeout: 120 * time.Second}))
	defer client.Close()
	models(ctx, client, os.Args[2], os.Args[4])
	tensors(ctx, client)
	generate(ctx, client, os.Args[3], os.Args[5])
	_, err := client.Describe(ctx, "nobody", false)
	var told *tensorplane.Error
	if errors.As(err, &told) {
		fmt.Printf("error %s: %s\n", tensorplane.CodeName(told.Code), told.Text)
	}
	check(client.DeleteTensor(ctx, "w"))
	check(client.DeleteMesh(ctx, "m"))
	for _, name := range []string{"mlp", "lm"} {
		check(client.Delete(ctx, name))
	}
	status := must(client.Status(ctx))
	fmt.Println("left", status.Models, "models", status.Meshes, "meshes", status.Tensors, "tensors")
}
